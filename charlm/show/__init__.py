"""Shows where a model looks as it reads a text: attention inside words and between them, as a page or as a figure.

    python -m charlm.show --model runs/hlm "I didn't see teh cat." --out attention.html

`charlm.show(model, text)` is the same from Python. `shown` is what both make, `page` writes the page, `figure` draws
with matplotlib. The package can be called: `charlm.show(...)` is the function of `charlm.api.showing`.
"""

from charlm.core.called import make_callable

make_callable(__name__)
