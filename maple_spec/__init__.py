"""An OpenAI-compatible server for ternary Maple models, wired from openapi.yaml."""

__version__ = "0.1.0"
