"""Every MAPLE_* variable: its type, range, default and meaning, stated once; read once, frozen.

The environment is read by pydantic-settings; a blank value means the default. `maple serve` offers a flag for each variable,
and the README's table is printed from here.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import AfterValidator, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from maple_spec.errors import SettingsError

PREFIX = "MAPLE_"
EMBEDDED_NAME = "maple-tiny (embedded)"  # what is served where model_path is None
SCRIPT_PREFIX = "script:"  # begins a model_path that names a script to be played

_ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]*://[^/\s]+", re.IGNORECASE)


def _origins(value: tuple[str, ...]) -> tuple[str, ...]:
    for origin in value:
        if not _ORIGIN.fullmatch(origin):
            raise ValueError(origin)
    return value


Origins = Annotated[tuple[str, ...], NoDecode, AfterValidator(_origins)]


class Settings(BaseSettings):
    """What the server was told by its environment and its command line.

    Raises pydantic's ValidationError when made directly; read_settings() turns that into one line.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, frozen=True, extra="forbid", protected_namespaces=(), allow_inf_nan=False
    )

    model_path: str | None = Field(
        None,
        description="What to serve: a folder with config.json and safetensors files, or script:FILE, a JSON file with answers "
        "to play. By default the embedded maple-tiny.",
    )
    model_id: str = Field("maple-preview", pattern=r"^\S+$", max_length=200, description="The model's id on the wire.")
    strict_model: bool = Field(False, description="Answer 404 to requests that name another model.")
    api_key: str | None = Field(
        None, description="The bearer token that requests must carry, all but /health, /openapi.json and /ui/; none by default."
    )
    device: Literal["auto", "cpu"] = Field("auto", description="Where the model runs.")
    dtype: Literal["auto", "float32"] = Field("auto", description="What the model computes in.")
    kernels: Literal["auto", "reference", "plain", "avx2", "avx512", "neon"] = Field(
        "auto",
        description="Instruction set of the kernels; auto is the best the machine has, reference is plain torch.",
    )
    activations: Literal["int16", "int8"] = Field(
        "int16", description="What the kernels round activations to; int8 is faster and less exact."
    )
    threads: int | None = Field(
        None, ge=1, le=1024, description="Threads the model computes with; by default one a core, for a very small model one."
    )
    prefix_cache_tokens: int | None = Field(
        None,
        ge=0,
        le=10**9,
        description="Tokens of earlier prompts and answers that the kernels need not compute again where a prompt begins with "
        "them; by default what a sixteenth of the memory holds. 0 keeps none.",
    )
    window_keys: Literal[512, 513] | None = Field(
        None, description="Keys that a sliding layer sees; by default what the checkpoint says, 512 for maple-preview."
    )
    temperature: float = Field(0.6, ge=0, le=2, description="Used where a request has none; 0 is greedy.")
    top_p: float = Field(0.95, ge=0, le=1, description="Used where a request has none; 1 switches it off.")
    top_k: int = Field(20, ge=-1, le=10**9, description="Used where a request has none; 0 and -1 switch it off.")
    max_new_tokens: int = Field(4096, ge=1, le=10**9, description="Cap of the tokens generated, where a request has none.")
    max_new_tokens_limit: int = Field(32768, ge=1, le=10**9, description="The highest cap that a request can ask for.")
    max_prompt_tokens: int = Field(65536, ge=1, le=10**9, description="Longer prompts are refused.")
    enable_thinking: bool = Field(True, description="Whether the model reasons first, where a request does not say.")
    include_reasoning: bool = Field(True, description="Whether answers hold the reasoning, where a request does not say.")
    max_queue_depth: int = Field(16, ge=0, le=10**6, description="Requests that may wait for the one slot; more get 503.")
    queue_timeout: float = Field(600.0, ge=0, le=10**6, description="Most seconds that a request waits for the slot.")
    max_body_bytes: int = Field(32 * 1024 * 1024, ge=1024, le=2**40, description="Larger request bodies get 413.")
    allowed_origins: Origins = Field(
        (), description="Origins, separated by commas, whose web pages may call the API; * is any. None by default."
    )
    shutdown_grace: float = Field(10.0, ge=0, le=3600, description="Seconds that running answers get to finish at shutdown.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least severity that is logged.")
    host: str = Field("127.0.0.1", pattern=r"^\S+$", description="Address that `maple serve` listens on.")
    port: int = Field(8000, ge=0, le=65535, description="Port that `maple serve` listens on; 0 picks a free one.")

    @model_validator(mode="before")
    @classmethod
    def _tidy(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Blank means default; words are matched without regard to case; lists are separated by commas."""
        tidy = {}
        for name, given in values.items():
            value = given.strip() if isinstance(given, str) else given
            if value in ("", None):
                continue
            if name in ("device", "dtype", "kernels", "activations", "log_level"):
                value = str(value).lower()
            if name == "allowed_origins" and isinstance(value, str):
                value = tuple(origin for part in value.split(",") if (origin := part.strip().rstrip("/")))
            if name == "window_keys" and value in ("512", "513"):
                value = int(value)
            tidy[name] = value
        return tidy


def read_settings(**flags: str | None) -> Settings:
    """Read the environment, flags (field name -> text, None where not given) before it.

    Raises SettingsError: one line that names each wrong variable, its value and its range.
    """
    try:
        return Settings(**{name: value for name, value in flags.items() if value is not None})  # type: ignore[arg-type]
    except ValidationError as error:
        raise SettingsError("; ".join(dict.fromkeys(_complaint(fault) for fault in error.errors()))) from None


def default_settings() -> Settings:
    """The defaults, whatever the environment says."""
    return Settings.model_construct()


def variable(name: str) -> str:
    """The environment variable of a field."""
    return PREFIX + name.upper()


def allowed_range(field: FieldInfo) -> str:
    """What values a field takes, in words: "an integer from 1 to 65535"."""
    kind = field.annotation
    choices = get_args(kind) if get_origin(kind) is Literal else _literals(kind)
    if choices:
        return "one of " + ", ".join(str(choice) for choice in choices)
    if kind is bool:
        return "true or false"
    if kind == tuple[str, ...]:
        return "a list of origins such as https://example.org, separated by commas"
    number = "an integer" if kind is int or int in get_args(kind) else "a number" if kind is float else None
    if number is None:
        return "a word" if any(hasattr(rule, "pattern") for rule in field.metadata) else "a text"
    bounds = {key: getattr(rule, key) for rule in field.metadata for key in ("ge", "le") if hasattr(rule, key)}
    return f"{number} from {bounds['ge']} to {bounds['le']}"


def _literals(kind: Any) -> tuple[Any, ...]:
    return tuple(choice for option in get_args(kind) if get_origin(option) is Literal for choice in get_args(option))


def _complaint(fault: Any) -> str:
    name = str(fault["loc"][0]) if fault["loc"] else ""
    if name not in Settings.model_fields:
        return f"{variable(name)} is not a setting"
    # A key is never shown here: any text is one.
    given = ",".join(fault["input"]) if isinstance(fault["input"], tuple) else fault["input"]
    return f"{variable(name)}={given!r} must be {allowed_range(Settings.model_fields[name])}"


def shown_default(field: FieldInfo) -> str:
    """A field's default as it would be written in the environment; empty where there is none."""
    default = field.default
    if default is None or default == ():
        return ""
    return str(default).lower() if isinstance(default, bool) else f"{default:g}" if isinstance(default, float) else str(default)


def markdown_table() -> str:
    """The table of all variables as the README shows it."""
    rows = ["| variable | values | default | meaning |", "|---|---|---|---|"]
    for name, field in Settings.model_fields.items():
        default = shown_default(field)
        rows.append(f"| `{variable(name)}` | {allowed_range(field)} | {default and f'`{default}`'} | {field.description} |")
    return "\n".join(rows) + "\n"
