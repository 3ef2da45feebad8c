"""A stage's parameters for people, and the JSON schema of a pipeline file for editors."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from prefdata.stage import shipped


def describe(kind: type[BaseModel], name: str) -> str:
    """A parameter of a stage, or a setting, for people: ``number, 0-1, default 0.8``."""
    schema = kind.model_json_schema()["properties"][name]
    options = schema.get("anyOf", [schema])
    words = []
    for option in options:
        if "enum" in option:
            words.append(" | ".join(map(str, option["enum"])))
        elif "const" in option:
            words.append(str(option["const"]))
        elif option.get("type") == "null":
            words.append("none")
        else:
            words.append(
                {"string": "text", "boolean": "true or false", "array": "list"}.get(
                    option.get("type", ""), option.get("type", "value")
                )
            )
            low = option.get("minimum", option.get("exclusiveMinimum"))
            high = option.get("maximum", option.get("exclusiveMaximum"))
            if low is not None or high is not None:
                words[-1] += f", {'' if low is None else f'{low:g}'}-{'' if high is None else f'{high:g}'}"
    if kind.model_fields[name].is_required():
        return " or ".join(words)
    default = kind.model_fields[name].get_default()
    return f"{' or '.join(words)}, default {'none' if default in (None, ()) else default}"


def json_schema() -> dict[str, Any]:
    """The JSON schema of a pipeline file, made from the stages."""
    stages: list[dict[str, Any]] = [{"type": "string", "pattern": r"\.py$"}]
    for name, kind in sorted(shipped().items()):
        title = kind.documentation()["asks"]
        parameters = kind.model_json_schema()
        parameters.pop("title", None)
        parameters.pop("description", None)
        stages.append({"const": name, "description": title})
        stages.append(
            {
                "type": "object",
                "properties": {name: parameters},
                "required": [name],
                "additionalProperties": False,
                "description": title,
            }
        )
    stages.append(
        {
            "type": "object",
            "patternProperties": {r"\.py$": {"type": "object"}},
            "minProperties": 1,
            "maxProperties": 1,
            "additionalProperties": False,
        }
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "prefdata pipeline",
        "type": "object",
        "properties": {
            "version": {"const": 1},
            "stages": {"type": "array", "items": {"anyOf": stages}},
            "gate": {"type": "array", "items": {"type": "string", "examples": ["too_similar<=5%", "kept>=60%"]}},
        },
        "required": ["stages"],
        "additionalProperties": False,
    }
