"""Text on its way to the model and back: tokens, templates, stop strings, and the splitting of what the model writes."""

from maple_spec.text.byte_tokenizer import ByteTokenizer
from maple_spec.text.chat_template import ChatTemplate
from maple_spec.text.detokenizer import Detokenizer
from maple_spec.text.output_parser import OutputParser
from maple_spec.text.segments import RenderedPrompt, Segment
from maple_spec.text.stop import StopMatcher
from maple_spec.text.tokenizer import Tokenizer

__all__ = [
    "ByteTokenizer",
    "ChatTemplate",
    "Detokenizer",
    "OutputParser",
    "RenderedPrompt",
    "Segment",
    "StopMatcher",
    "Tokenizer",
]
