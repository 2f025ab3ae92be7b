"""Measures how much noise in the text costs fine-tuned models: `python -m charlm.robustness`, or from Python

    from charlm.robustness.measure import measure
    from charlm.robustness.render import write_report

    results = measure(["runs/tag_hlm", "runs/tag_bert"], ["test.conll"], "runs/report", noise=["keyboard"])
    write_report(results, Path("runs/report"))

`charlm.robustness.measure.DESCRIPTION` describes the results. The package can be called:
`charlm.robustness(model, rows)` is the function of `charlm.api.reports`.
"""

from charlm.core.called import make_callable

make_callable(__name__)
