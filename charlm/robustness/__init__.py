"""Measures how much noise in the text costs fine-tuned models: `python -m charlm.robustness`, or from Python

    from charlm.robustness.measure import measure
    from charlm.robustness.render import write_report

    results = measure(["runs/tag_hlm", "runs/tag_bert"], ["test.conll"], "runs/report", noise=["keyboard"])
    write_report(results, Path("runs/report"))

`charlm.robustness.measure.DESCRIPTION` describes the results.
"""
