"""Serves models over HTTP: `charlm serve`, also run as python -m charlm.serve.

`app` answers requests; begin with it. `abilities` says what a model can be asked, `fields` checks what a request holds,
`batching` joins requests into batches, `models` runs a model on them, `pages` describes the server in OpenAPI and HTML,
`metrics` counts, `running` starts and stops the server. It has no authentication: who reaches the port may use it.
"""
