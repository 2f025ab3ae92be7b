"""Tests requests and responses of the server with a model without weights: results, checks, limits, descriptions."""

from __future__ import annotations

import json

import pytest
from serve.conftest import server_of
from starlette.testclient import TestClient

from charlm.serve.abilities import ABILITIES, MODEL
from charlm.serve.app import Serving
from charlm.serve.fields import read
from charlm.serve.limits import Limits
from charlm.serve.models import Served


@pytest.fixture
def client(stub):
    with server_of(stub, max_bytes=2000, max_texts=3, max_characters=50, max_numbers=40) as (_, client):
        yield client


def test_texts_are_encoded(client):
    found = client.post("/v1/encode", json={"texts": ["the cat", "dog"], "vectors": True}).json()
    assert found["model"] == "stub"
    assert [one["words"] for one in found["results"]] == [["the", "cat"], ["dog"]]
    assert found["results"][0]["offsets"] == [[0, 3], [4, 7]]
    assert found["results"][0]["vectors"] == [[7.0] * 4] * 2
    one = client.post("/v1/encode", json={"texts": "dog"}).json()["results"]
    assert one == [{"words": ["dog"], "offsets": [[0, 3]], "sentence": [1.0] * 4}]


def test_pairs_go_with_their_texts_and_no_number_is_null(client):
    found = client.post("/v1/classify", json={"texts": ["a", "b"], "pairs": ["x", None]}).json()["results"]
    assert [one["label"] for one in found] == ["x", "None"]
    assert found[0]["probabilities"] == {"x": 1.0, "odd": None}
    wrong = client.post("/v1/classify", json={"texts": ["a", "b"], "pairs": ["x"]})
    assert (wrong.status_code, wrong.json()) == (422, {"error": "2 texts, but 1 pairs: one for each"})


WRONG = [
    ({"texts": 3}, 422, "texts: expected a list of texts, got a whole number"),
    ({"texts": []}, 422, "texts is empty: expected at least one text"),
    ({"texts": ["a", None]}, 422, "texts[1]: expected a text, got null"),
    ({}, 422, "the field 'texts' is missing: a text, or a list of texts"),
    ([], 422, "expected a JSON object, got a list"),
    ({"texts": "a", "unti": "words"}, 422, "unknown field 'unti'; did you mean unit?"),
    ({"texts": "a", "unit": "letters"}, 422, "unit: expected one of words, pieces, got 'letters'"),
    ({"texts": "a", "vectors": 1}, 422, "vectors: expected true or false, got a whole number"),
    ({"texts": "a", "model": "stbu"}, 404, "no model 'stbu'; did you mean stub?"),
    ({"texts": ["a"] * 4}, 413, "texts: 4 texts, but a request may have 3 (--max-texts)"),
    ({"texts": "a" * 51}, 413, "texts: 51 characters, but a text may have 50 (--max-characters)"),
    ({"texts": "a " * 20, "vectors": True}, 413, "the vectors have more than 40 numbers (--max-numbers)"),
    ({"texts": "refuse"}, 422, "no text with such a word"),
]


@pytest.mark.parametrize(("body", "status", "message"), WRONG)
def test_a_wrong_request_is_told_in_one_line(client, body, status, message):
    found = client.post("/v1/encode", json=body)
    assert found.status_code == status
    assert found.json()["error"].startswith(message)
    assert found.text.count("\n") == 1


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b'{"texts": ', 400, "expected JSON in UTF-8: Expecting value"),
        (b"\xff\x00\xfe", 400, "expected JSON in UTF-8: the body is not UTF-8"),
        (b"", 400, "expected JSON in UTF-8"),
        (b'{"texts": "a", "texts": "b"}', 400, "expected JSON in UTF-8: key 'texts' is there twice"),
        (b"[" * 900 + b"]" * 900, 400, "expected JSON in UTF-8: nested more than 100 deep"),
        (b'{"texts": ' + b"9" * 1900, 400, "expected JSON"),
        (b'{"texts": "\\ud800"}', 422, "texts: expected Unicode characters, got half of a surrogate pair"),
        (b" " * 2001, 413, "expected a body of at most 2,000 bytes (--max-bytes)"),
    ],
)
def test_a_body_that_is_no_request_is_told_in_one_line(client, body, status, message):
    found = client.post("/v1/encode", content=body, headers={"content-type": "application/json"})
    assert found.status_code == status
    assert found.json()["error"].startswith(message)


def test_a_large_body_without_its_length_is_refused(client):
    parts = (b" " * 100 for _ in range(1000))
    found = client.post("/v1/encode", content=parts, headers={"content-type": "application/json"})
    assert found.status_code == 413


def test_paths_methods_and_types(client):
    assert client.get("/v1/encod").json() == {"error": "no path '/v1/encod'; did you mean /v1/encode?"}
    found = client.get("/v1/encode")
    assert (found.status_code, found.headers["allow"]) == (405, "POST")
    assert found.json() == {"error": "/v1/encode expects POST"}
    assert client.post("/health").json() == {"error": "/health expects GET"}
    assert client.post("/v1/encode", content=b"{}", headers={"content-type": "text/plain"}).status_code == 415
    lacking = client.post("/v1/tag", json={"texts": "a"})
    assert (lacking.status_code, lacking.json()["error"]) == (
        404,
        "no model of this server can tag; they can encode, classify",
    )


def test_what_breaks_down_is_told_without_the_text(client, log_lines):
    found = client.post("/v1/encode", json={"texts": "break 1234"})
    assert (found.status_code, found.json()) == (500, {"error": "the server failed: RuntimeError"})
    assert "error: RuntimeError in encode failed at " in str(log_lines)
    assert "1234" not in str(log_lines)
    assert client.post("/v1/encode", json={"texts": "a"}).status_code == 200


def test_a_server_that_is_not_ready_says_so(stub):
    with server_of(stub) as (serving, client):
        assert client.get("/health").json() == {"status": "ready"}
        serving.ready = False
        for found in (client.get("/health"), client.post("/v1/encode", json={"texts": "a"})):
            assert (found.status_code, found.headers["retry-after"]) == (503, "1")
            assert found.json() == {"error": "the server is warming up"}
        serving.stopping = True
        assert client.get("/health").json() == {"error": "the server is stopping"}
    assert stub.calls == []


def test_models_metrics_and_descriptions(client):
    client.post("/v1/encode", json={"texts": ["a", "b"]})
    assert client.get("/v1/models").json()["models"] == [
        {
            "name": "stub",
            "path": "runs/stub",
            "kind": "Stub",
            "task": None,
            "labels": [],
            "abilities": ["encode", "classify"],
        }
    ]
    client.get("/a/secret")
    metrics = client.get("/metrics").text
    assert 'charlm_requests_total{path="/v1/encode",status="200"} 1.0' in metrics
    assert 'charlm_requests_total{path="other",status="404"} 1.0' in metrics
    assert 'charlm_texts_total{ability="encode",model="stub"} 2.0' in metrics
    assert "secret" not in metrics
    described = client.get("/openapi.json").json()
    assert {"/v1/encode", "/v1/classify", "/health"} < described["paths"].keys()
    assert "/v1/tag" not in described["paths"]
    schema = described["paths"]["/v1/encode"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert schema["required"] == ["texts"]
    assert schema["properties"]["unit"]["enum"] == ["words", "pieces"]
    page = client.get("/docs")
    assert client.get("/").text == page.text
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert "POST /v1/encode" in page.text
    assert "<script" not in page.text
    assert "There is no authentication" in page.text


def test_the_access_log_has_no_texts(stub, log_lines):
    limits = Limits()
    serving = Serving([Served("stub", stub, limits)], limits, access_log=True)
    client = TestClient(serving.app())
    client.post("/v1/encode?word=secret", json={"texts": "secret"})
    client.get("/secret")
    *_, first, second = log_lines.lines
    assert first.startswith("testclient POST /v1/encode 503, ")
    assert second.startswith("testclient GET other 404, ")
    assert "secret" not in str(log_lines)


def test_every_ability_has_an_example_that_fits_its_fields():
    for ability in ABILITIES.values():
        values = read(json.loads(json.dumps(ability.example)), (MODEL, *ability.fields), Limits())
        assert ability.ask(values).items


def test_seeds_of_a_prompt_do_not_depend_on_other_requests():
    values = {"texts": ["a", "b", "a"], "seed": 5, "max_new": 3, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
    assert ABILITIES["generate"].ask(values).items == [("a", 5), ("b", 5), ("a", 6)]
