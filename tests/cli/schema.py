"""Validate an object of sgl-pcie --json against docs/json-schema (Debian's python3-jsonschema)."""

import functools
import json
import pathlib

import jsonschema

FOLDER = pathlib.Path(__file__).resolve().parent.parent.parent / "docs" / "json-schema"


@functools.lru_cache(maxsize=None)
def validator(name):
    schemas = {path.name: json.loads(path.read_text()) for path in FOLDER.glob("*.json")}
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    resolver = jsonschema.RefResolver(name, schemas[name], store=schemas)
    return jsonschema.Draft202012Validator(schemas[name], resolver=resolver)


def validate(data):
    """Raise jsonschema.ValidationError when data is not what its command may print."""
    validator(f"{data.get('command') or 'envelope'}.json").validate(data)
