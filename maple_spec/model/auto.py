"""Maple for transformers: MapleConfig and MapleForCausalLM, registered with the Auto classes on import.

    import maple_spec.model.auto
    AutoModelForCausalLM.from_pretrained(folder)                                           # config.json says model_type "maple"
    AutoModelForCausalLM.from_pretrained(folder, config=MapleConfig.from_pretrained(folder))  # the key is absent

A local folder may hold the published BF16 layout or the 2-bit one. Weights are float32 unless a dtype is asked for. Padding on
either side is simply left out: each sequence of a batch runs by itself over the tokens that its attention mask keeps.
"""

# mypy: untyped-calls-exclude=transformers
from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from maple_spec.checkpoints.weights import Weights, shapes_of
from maple_spec.model.attention import Projection
from maple_spec.model.body import Embedding, MapleBody
from maple_spec.model.config import FULL, SLIDING, ModelConfig, require_maple
from maple_spec.model.kv_cache import KVCache
from maple_spec.model.maple import Maple

# Keys that speak of files, of other runtimes or of other code than this; transformers would act on some of them.
_FOREIGN_KEYS = ("auto_map", "model_file", "quantization", "quantization_config", "flash_head", "rope_scaling", "quantize")


class MapleConfig(PreTrainedConfig):
    """The published config.json as transformers wants it; sizes and switches default to the published values."""

    model_type = "maple"

    vocab_size: int = 151936
    hidden_size: int = 2048
    num_hidden_layers: int = 24
    num_attention_heads: int = 16
    num_key_value_heads: int = 4
    head_dim: int = 128
    moe_intermediate_size: int = 512
    num_experts: int = 256
    num_experts_per_tok: int = 8
    layer_types: list[str] | None = None
    sliding_window: int = 512
    window_keys: int | None = None
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    partial_rotary_factor: float = 0.5
    nope_on_global_attention: bool = True
    norm_topk_prob: bool = True
    swiglu_limit: float = 7.0
    tie_word_embeddings: bool = False
    max_position_embeddings: int = 131072
    initializer_range: float = 0.02
    use_cache: bool = True
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    pad_token_id: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        """Fill in layer_types (every fourth layer is full) and refuse what would be another architecture."""
        if self.layer_types is None:
            self.layer_types = [FULL if layer % 4 == 3 else SLIDING for layer in range(self.num_hidden_layers)]
        kept = {key: value for key, value in kwargs.items() if key not in _FOREIGN_KEYS or (key == "rope_scaling" and value)}
        ModelConfig.from_dict({"model_type": "maple", **self._own_fields(), **kept})
        super().__post_init__(**kept)  # type: ignore[no-untyped-call]

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """As PreTrainedConfig.from_dict; raises CheckpointError where the file is not a Maple's."""
        require_maple(config_dict)
        return super().from_dict(config_dict, **kwargs)

    def model_config(self) -> ModelConfig:
        """The part that the forward pass needs."""
        return ModelConfig.from_dict({"model_type": "maple", **self._own_fields()})

    def _own_fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in MapleConfig.__annotations__}


class MapleCache:
    """The caches of a batch, one a sequence. Columns count padding too, as transformers counts them."""

    is_compileable = False
    is_croppable = False  # a ring has overwritten what going back would need

    def __init__(self, rows: list[KVCache]) -> None:
        self.rows = rows
        self.columns = 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Columns seen so far, the same for every layer."""
        return self.columns

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Continue row i from what row beam_idx[i] was."""
        self.rows = [self.rows[row].clone() for row in beam_idx.tolist()]


class MapleForCausalLM(PreTrainedModel, GenerationMixin):
    """Maple with transformers' interface; its parameters bear the published names."""

    config_class = MapleConfig
    base_model_prefix = "model"
    _no_split_modules = ["DecoderLayer"]  # noqa: RUF012 - transformers declares it so
    _tied_weights_keys = {"lm_head.weight": "model.word_embeddings.weight"}  # noqa: RUF012
    _supports_sdpa = True

    def __init__(self, config: MapleConfig) -> None:
        super().__init__(config)
        self._sizes = config.model_config()
        self.model = MapleBody(self._sizes)
        self.lm_head = Projection(self._sizes.vocab_size, self._sizes.hidden_size)
        self.post_init()  # type: ignore[no-untyped-call]

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:
        """As PreTrainedModel.from_pretrained, float32 by default.

        A local folder goes through this project's own readers: both layouts, and CheckpointError for whatever is wrong with it.
        """
        if "dtype" not in kwargs and "torch_dtype" not in kwargs:
            kwargs["dtype"] = torch.float32
        folder = Path(pretrained_model_name_or_path) if pretrained_model_name_or_path is not None else None
        if folder is None or not folder.is_dir():
            return super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        config = kwargs.pop("config", None)
        if not isinstance(config, PreTrainedConfig):
            config, kwargs = MapleConfig.from_pretrained(config or folder, return_unused_kwargs=True, **kwargs)
        with torch.device("meta"):
            shapes = shapes_of(Maple(config.model_config()).named_parameters())
        state = dict(Weights(folder).read(shapes))
        loaded = super().from_pretrained(None, *args, config=config, state_dict=state, **kwargs)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        model.name_or_path = model.config.name_or_path = str(folder)
        if (folder / "generation_config.json").is_file():
            model.generation_config = GenerationConfig.from_pretrained(folder)
        return loaded

    def forward(  # noqa: PLR0917 - the order is transformers'
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        cache: MapleCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int = 0,
        return_dict: bool | None = None,
    ) -> CausalLMOutputWithPast | tuple[Any, ...]:
        """input_ids [B, T] behind the cache's columns -> logits [B, T or logits_to_keep, vocab_size], and the loss with labels.

        attention_mask: [B, columns so far], 1 for a token and 0 for padding on either side; logits of padding mean nothing.
        A cache keeps no gradients: by default one is made only where none are recorded.
        """
        if cache is not None and not isinstance(cache, MapleCache):
            raise TypeError(
                f"cache must be a MapleCache, as a forward pass of this model returns it, not {type(cache).__name__}"
            )
        training = torch.is_grad_enabled()
        if training and (cache is not None or use_cache):
            raise ValueError("a cache keeps no gradients: call under torch.no_grad() or without cache and use_cache")
        batch, count = input_ids.shape
        kept = _kept_tokens(attention_mask, cache.columns if cache is not None else 0, input_ids)
        if cache is None and not training and (self.config.use_cache if use_cache is None else use_cache):
            cache = MapleCache([KVCache(self._sizes, self.dtype, device=self.device) for _ in range(batch)])
        hidden = torch.stack([self._run(input_ids[row], kept[row], cache, row) for row in range(batch)])
        if cache is not None:
            cache.columns += count
        logits = self.lm_head(hidden[:, -logits_to_keep:])
        loss = None if labels is None else self.loss_function(logits, labels, vocab_size=self._sizes.vocab_size)
        output = CausalLMOutputWithPast(loss=loss, logits=logits, cache=cache)  # type: ignore[arg-type]
        return output if return_dict is None or return_dict else output.to_tuple()

    def _run(self, token_ids: Tensor, kept: Tensor, cache: MapleCache | None, row: int) -> Tensor:
        """The hidden states of one sequence's columns [T, hidden], zeros at padding."""
        places = kept.nonzero().squeeze(-1)
        blank = torch.zeros(token_ids.shape[0], self._sizes.hidden_size, dtype=self.dtype, device=token_ids.device)
        if not places.numel():
            return blank
        hidden = self.model(token_ids[places], cache.rows[row] if cache is not None else None)
        return blank.index_put((places,), hidden)

    def get_input_embeddings(self) -> Embedding:
        return self.model.word_embeddings  # type: ignore[no-any-return]

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        """No: generate starts without a cache and takes the one that the first forward pass returns."""
        return False


def _kept_tokens(attention_mask: Tensor | None, columns: int, input_ids: Tensor) -> Tensor:
    """Which of input_ids are tokens rather than padding, bool [B, T]."""
    if attention_mask is None:
        return torch.ones_like(input_ids, dtype=torch.bool)
    batch, count = input_ids.shape
    if tuple(attention_mask.shape) not in ((batch, count), (batch, columns + count)):
        raise ValueError(
            f"attention_mask has shape {list(attention_mask.shape)}, expected {[batch, columns + count]}: "
            "one column for every token so far, 1 for a token and 0 for padding"
        )
    return attention_mask[:, -count:].bool()


AutoConfig.register("maple", MapleConfig)
AutoModelForCausalLM.register(MapleConfig, MapleForCausalLM)
