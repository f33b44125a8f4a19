"""Settings: read from the environment, typed, ranged, frozen; a wrong one is one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from maple_spec.errors import SettingsError
from maple_spec.settings import (
    Settings,
    allowed_range,
    default_settings,
    markdown_table,
    read_settings,
    shown_default,
    variable,
)

README = Path(__file__).parent.parent / "README.md"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(variable(name), raising=False)


def test_without_variables_the_defaults_hold() -> None:
    assert read_settings() == default_settings()


@pytest.mark.parametrize("name", Settings.model_fields)
@pytest.mark.parametrize("blank", ["", "  "])
def test_a_blank_value_means_the_default(monkeypatch: pytest.MonkeyPatch, name: str, blank: str) -> None:
    monkeypatch.setenv(variable(name), blank)
    assert read_settings() == default_settings()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("model_path", "/models/maple", "/models/maple"),
        ("model_id", "deepgrove/maple", "deepgrove/maple"),
        ("strict_model", "Yes", True),
        ("strict_model", "0", False),
        ("api_key", " sk-1 ", "sk-1"),
        ("device", "CPU", "cpu"),
        ("dtype", "float32", "float32"),
        ("threads", "2", 2),
        ("window_keys", "513", 513),
        ("temperature", "0", 0.0),
        ("top_p", "1", 1.0),
        ("top_k", "-1", -1),
        ("max_new_tokens", "1", 1),
        ("queue_timeout", "0.5", 0.5),
        ("max_queue_depth", "0", 0),
        ("allowed_origins", "http://a:3000, https://b.example/", ("http://a:3000", "https://b.example")),
        ("allowed_origins", "*", ("*",)),
        ("log_level", "DEBUG", "debug"),
        ("host", "0.0.0.0", "0.0.0.0"),
        ("port", "0", 0),
    ],
)
def test_a_value_is_read_from_the_environment_and_from_a_flag(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, value: Any
) -> None:
    assert getattr(read_settings(**{name: text}), name) == value
    monkeypatch.setenv(variable(name), text)
    assert getattr(read_settings(), name) == value


def test_a_flag_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAPLE_PORT", "1")
    assert read_settings(port="2").port == 2
    assert read_settings(port=None).port == 1


@pytest.mark.parametrize(
    ("name", "text", "range_"),
    [
        ("strict_model", "maybe", "true or false"),
        ("model_id", "two words", "a word"),
        ("device", "tpu", "one of auto, cpu"),
        ("dtype", "int3", "one of auto, float32"),
        ("threads", "0", "an integer from 1 to 1024"),
        ("window_keys", "511", "one of 512, 513"),
        ("temperature", "nan", "a number from 0 to 2"),
        ("temperature", "2.5", "a number from 0 to 2"),
        ("top_p", "-0.1", "a number from 0 to 1"),
        ("top_k", "1.5", "an integer from -1 to 1000000000"),
        ("max_new_tokens_limit", "0", "an integer from 1 to 1000000000"),
        ("queue_timeout", "inf", "a number from 0 to 1000000"),
        ("max_body_bytes", "32MiB", "an integer from 1024 to 1099511627776"),
        ("allowed_origins", "example.org", "a list of origins such as https://example.org, separated by commas"),
        ("log_level", "loud", "one of debug, info, warning, error"),
        ("port", "65536", "an integer from 0 to 65535"),
    ],
)
def test_a_wrong_value_is_one_line_with_variable_value_and_range(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, range_: str
) -> None:
    monkeypatch.setenv(variable(name), text)
    with pytest.raises(SettingsError) as fault:
        read_settings()
    assert str(fault.value) == f"{variable(name)}={text!r} must be {range_}"


def test_all_wrong_values_stand_in_the_one_line() -> None:
    with pytest.raises(SettingsError) as fault:
        read_settings(port="x", top_p="2", api_key="sk-secret")
    assert str(fault.value).count("MAPLE_") == 2
    assert "\n" not in str(fault.value)
    assert "sk-secret" not in str(fault.value)


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        default_settings().port = 1


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_variable_has_a_sentence_a_range_and_a_default_inside_it(name: str) -> None:
    field = Settings.model_fields[name]
    assert field.description
    assert field.description.endswith(".")
    assert allowed_range(field)
    default = shown_default(field)
    assert getattr(read_settings(**{name: default or None}), name) == field.default


def test_the_readme_shows_the_table_of_all_variables() -> None:
    assert markdown_table() in README.read_text(encoding="utf-8")
