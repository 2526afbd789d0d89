"""An answer held to a JSON schema, by the real binary: what is sent, the one correction, the exit
code.
"""

import json

import pytest

from fugu_cli.session.events import Asked
from tests.acceptance.driving import Agent, Done, Place
from tests.acceptance.loopback import Loopback, Says, Use

SCHEMA = {"type": "object", "properties": {"files": {"type": "integer"}}, "required": ["files"]}


def result(done: Done) -> dict[str, object]:
    found = json.loads(done.out.splitlines()[-1])
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("agent", "field"),
    [
        (Agent("worker"), "response_format"),
        (Agent("worker", more='api = "responses"'), "text"),
        (Agent("worker", provider="anthropic"), "output_config"),
    ],
)
def test_the_schema_goes_to_each_wire_and_the_value_comes_back(
    place: Place, server: Loopback, agent: Agent, field: str
) -> None:
    place.configure(agent)
    place.files({"schema.json": json.dumps(SCHEMA)})
    server.play(
        "worker", Says(calls=(Use("list", {"path": "."}),)), Says('```json\n{"files": 2}\n```')
    )
    done = place.fugu(
        "-p", "how many files?", "--json-schema", "schema.json", "--output-format", "json"
    )
    assert done.code == 0, done.err
    assert (result(done)["subtype"], result(done)["structured_output"]) == ("success", {"files": 2})
    asked = server.asked("worker")
    assert [json.dumps(SCHEMA) in json.dumps(one.body[field]) for one in asked] == [True, True]
    assert [
        json.loads(event.answer_schema) for event in place.events() if isinstance(event, Asked)
    ] == [SCHEMA]


def test_an_answer_that_does_not_follow_it_is_asked_for_once_more_with_the_fault(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"))
    server.play("worker", Says("Two files."), Says('{"files": "two"}'), Says('{"files": 2}'))
    done = place.fugu(
        "-p", "how many?", "--json-schema", json.dumps(SCHEMA), "--output-format", "json"
    )
    assert (done.code, result(done)["subtype"]) == (3, "error_max_structured_output_retries")
    assert ("structured_output" in result(done), "'two' is not of type 'integer'" in done.out) == (
        False,
        True,
    )
    first, second = server.asked("worker")
    assert ("it is not JSON" in first.text, "it is not JSON" in second.text) == (False, True)

    server.play("worker", Says("Two files."), Says('{"files": 2}'))
    done = place.fugu("-p", "how many?", "--json-schema", json.dumps(SCHEMA))
    assert (done.code, done.out) == (0, '{"files": 2}\n'), done.err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("nowhere.json", "cannot read nowhere.json"),
        ("check.sh", "check.sh is no JSON"),
        ('{"type": "objekt"}', "is no JSON schema: type: 'objekt' is not valid"),
        ('{"$schema": 5}', "$schema is not a text"),
        (
            '{"$ref": "https://example.org/a.json"}',
            "it refers to what is not in it: https://example.org/a.json",
        ),
        (
            '{"properties": {"a": {"$ref": "#/$defs/b"}}}',
            "it refers to what is not in it: #/$defs/b",
        ),
        ("", "--json-schema is empty"),
    ],
)
def test_a_schema_that_is_none_is_one_line_before_anything_is_spent(
    place: Place, server: Loopback, given: str, said: str
) -> None:
    place.configure(Agent("worker"))
    server.play("worker", Says("{}"))
    done = place.fugu("-p", "how many?", "--json-schema", given)
    assert (done.code, said in done.err, server.asked("worker")) == (1, True, []), done.err
    assert place.sessions() == []
