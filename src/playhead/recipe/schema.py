"""The JSON Schema of a recipe file, for editors: msgspec's own, opened to the shorthands of the reader."""

from __future__ import annotations

from typing import Any

import msgspec

from playhead.recipe.field_docs import FIELD_DOCS
from playhead.recipe.plain import TAG
from playhead.recipe.values import Recipe

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_REFERENCE = {"type": "string", "pattern": r"\$\{"}  # ${ENV} may stand where a number or a word is expected
_FILES_OF_A_SOURCE = {"anyOf": [{"required": ["path"]}, {"required": ["options"]}]}
_TEXTS = {"type": "array", "items": {"type": "string"}}


def recipe_schema() -> dict[str, Any]:
    """Law: a recipe file that `Recipe.load` accepts is valid; a misspelt key or a wrong type is not."""
    (root,), parts = msgspec.json.schema_components([Recipe], ref_template="#/$defs/{name}")
    definitions = {name: _definition(name, part) for name, part in parts.items()}
    return {"$schema": DIALECT, "title": "Playhead recipe", **root, "$defs": definitions}


def _definition(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    docs = FIELD_DOCS[name]
    properties = {}
    for key, property_schema in schema["properties"].items():
        if key == TAG:
            continue
        opened = property_schema if key == "type" else _open(property_schema)
        properties[key] = {**opened, "description": docs.get(key, "Which kind it is.")}
    required = [key for key in schema.get("required", []) if key != TAG]
    either = _FILES_OF_A_SOURCE if name == "Source" else {}
    return {**schema, "properties": properties, "required": required, **either}


def _open(schema: Any) -> Any:
    """The schema with the shorthands a reader accepts."""
    if isinstance(schema, list):
        return [_open(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("discriminator", {}).get("propertyName") == TAG:
        # Distinguished by one key, so that an editor reports the misspelt key and not "matches neither".
        return {
            "if": {"required": ["sources"]},
            "then": {"$ref": "#/$defs/Group"},
            "else": {"$ref": "#/$defs/Source"},
        }
    if schema.get("$ref") == "#/$defs/Length":
        return {"anyOf": [{"type": "string"}, schema]}
    opened = {key: value if key == "default" else _open(value) for key, value in schema.items()}
    opened.pop("discriminator", None)
    if opened.get("default", ...) is None:
        del opened["default"]
    return _widen(opened)


def _widen(schema: dict[str, Any]) -> dict[str, Any]:
    default = {"default": schema["default"]} if "default" in schema else {}
    plain = {key: value for key, value in schema.items() if key != "default"}
    if plain == _TEXTS:
        return {"anyOf": [{"type": "string"}, plain], **default}
    if plain.get("type") in {"integer", "number", "boolean"} or "enum" in plain:
        return {"anyOf": [plain, _REFERENCE], **default}
    return schema
