"""What a model is to a serving engine: its layers as matrices, attention and experts, from the numbers of a
config.json."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tracekit.analyzers.core import InputError, toml_table

MODELS = Path(__file__).parent / "models.toml"


class Matrix(NamedTuple):
    """Weights of a product: `k` inputs and `n` outputs."""

    n: int
    k: int
    cut: Literal["n", "k", ""] = ""
    """The side that tensor parallelism divides; "": each GPU has all of it."""


@dataclass(frozen=True)
class Attention:
    """Attention of a layer. `latent` is multi-head latent attention, whose heads share one compressed key and value;
    `state` a recurrence (gated delta rule), which has no cache but a state for each request."""

    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    matrices: tuple[Matrix, ...]
    window: int = 0
    """Most keys that a query sees; 0: all."""
    latent: int = 0
    """Values of the latent, with its rotary part; 0: no latent."""
    indexed: int = 0
    """Values of a token's index, with which each query selects `window` keys; 0: none."""
    state: int = 0
    """Values of the state of a request; 0: keys and values are cached."""

    @property
    def cached(self) -> int:
        """Values that each token adds to the cache."""
        if self.state:
            return 0
        return self.latent or self.kv_heads * (self.key_dim + self.value_dim)


@dataclass(frozen=True)
class FeedForward:
    """The matrices of a dense layer or of shared experts, and the routed experts."""

    matrices: tuple[Matrix, ...]
    experts: int = 0
    chosen: int = 0
    expert: tuple[Matrix, ...] = ()


class Layers(NamedTuple):
    """A number of equal layers."""

    copies: int
    attention: Attention
    feed_forward: FeedForward


@dataclass(frozen=True)
class Model:
    """The numbers of an architecture that decodes."""

    name: str
    hidden: int
    vocabulary: int
    layers: tuple[Layers, ...]
    positions: int
    tied: bool
    experts_only: bool
    """Whether formats of 4 bits are for the routed experts alone, as published checkpoints of such models are."""

    @property
    def depth(self) -> int:
        return sum(each.copies for each in self.layers)

    @property
    def parameters(self) -> int:
        per_layer = sum(each.copies * (weights(_all(each)) + weights(_experts(each))) for each in self.layers)
        return per_layer + (1 if self.tied else 2) * self.vocabulary * self.hidden

    @property
    def active_parameters(self) -> int:
        """Parameters that one token is multiplied with."""
        chosen = sum(each.copies * weights(each.feed_forward.expert) * each.feed_forward.chosen for each in self.layers)
        return chosen + sum(each.copies * weights(_all(each)) for each in self.layers) + self.vocabulary * self.hidden


def weights(matrices: tuple[Matrix, ...]) -> int:
    return sum(each.n * each.k for each in matrices)


def _all(layers: Layers) -> tuple[Matrix, ...]:
    return layers.attention.matrices + layers.feed_forward.matrices


def _experts(layers: Layers) -> tuple[Matrix, ...]:
    return layers.feed_forward.expert * layers.feed_forward.experts


class _Config:
    """A config.json that may call a number by one of several names. Numbers of text models in others come first."""

    def __init__(self, values: Mapping[str, Any]):
        inner = values.get("text_config")
        self.values = {**values, **inner} if isinstance(inner, Mapping) else dict(values)

    def number(self, *names: str, default: int | None = None) -> int:
        """Raises InputError if none of the names has a number from 0 to 10^8."""
        for name in names:
            value = self.values.get(name)
            if isinstance(value, (int, float)) and 0 <= value <= 10**8:
                return int(value)
        if default is None:
            raise InputError(
                f"The config has no {names[0]}.", "A serving plan needs it.", "Give the config.json of a decoder."
            )
        return default

    def words(self, name: str) -> list[str]:
        value = self.values.get(name)
        return [str(each) for each in value] if isinstance(value, list) else []


def model_of(values: Mapping[str, Any], name: str) -> Model:
    """Return the model of a config.json. Raises InputError if it lacks a number or is of no decoder."""
    config = _Config(values)
    if not _decodes(values):
        raise _no_decoder(name)
    hidden = config.number("hidden_size", "n_embd", "d_model")
    depth = config.number("num_hidden_layers", "n_layer", "num_layers")
    heads = config.number("num_attention_heads", "n_head")
    if min(hidden, depth, heads) < 1 or depth > 1000:
        raise _no_decoder(name)
    kinds = [(_attention(config, hidden, layer), _feed_forward(config, hidden, layer)) for layer in range(depth)]
    return Model(
        name=name,
        hidden=hidden,
        vocabulary=config.number("vocab_size"),
        layers=tuple(Layers(kinds.count(kind), *kind) for kind in dict.fromkeys(kinds)),
        positions=config.number("max_position_embeddings", "n_positions", default=10**8) or 10**8,
        tied=bool(config.values.get("tie_word_embeddings", False)),
        experts_only=any(feed_forward.experts for _, feed_forward in kinds),
    )


def _decodes(values: Mapping[str, Any]) -> bool:
    """Return whether a class that a config names, if it names some, makes one token after another."""
    named, ends = values.get("architectures"), ("CausalLM", "LMHeadModel", "ConditionalGeneration")
    makes = not isinstance(named, list) or not named or any(str(each).endswith(ends) for each in named)
    return makes and not values.get("is_encoder_decoder")


def _no_decoder(name: str) -> InputError:
    return InputError(f"{name} is not served token by token.", "It is no decoder.", "Give a causal language model.")


def _attention(config: _Config, hidden: int, layer: int) -> Attention:
    kinds = config.words("layer_types")
    every = config.number("full_attention_interval", default=0)
    kind = kinds[layer] if layer < len(kinds) else ""
    if kind == "linear_attention" or (not kinds and every and (layer + 1) % every):
        return _recurrent(config, hidden)
    if config.number("kv_lora_rank", default=0):
        return _latent(config, hidden)
    heads = config.number("num_attention_heads", "n_head")
    one = config.values.get("multi_query") and not config.values.get("new_decoder_architecture")
    kv_heads = 1 if one else config.number("num_key_value_heads", "num_kv_heads", default=heads) or heads
    size = config.number("head_dim", default=hidden // heads) or hidden // heads
    gate = heads * size if every or config.values.get("attn_output_gate") else 0
    matrices = (Matrix(heads * size + gate + 2 * kv_heads * size, hidden, "n"), Matrix(hidden, heads * size, "k"))
    return Attention(heads, kv_heads, size, size, matrices, _window(config, kind, layer))


def _window(config: _Config, kind: str, layer: int) -> int:
    """Return the most keys of a layer. Without a list of kinds, every n-th layer sees all keys if the config says so,
    and no layer has a window that the config switches off."""
    size = config.number("sliding_window", default=0)
    pattern = config.number("sliding_window_pattern", default=0)
    if kind:
        return size if kind == "sliding_attention" else 0
    if config.values.get("use_sliding_window") is False or (pattern and not (layer + 1) % pattern):
        return 0
    return size


def _latent(config: _Config, hidden: int) -> Attention:
    heads, rank = config.number("num_attention_heads"), config.number("kv_lora_rank")
    plain, rotary = config.number("qk_nope_head_dim"), config.number("qk_rope_head_dim")
    value, query = config.number("v_head_dim"), config.number("q_lora_rank", default=0)
    queries: tuple[Matrix, ...] = (Matrix(heads * (plain + rotary), query or hidden, "n"),)
    down = Matrix(query + rank + rotary, hidden)
    up, out = Matrix(heads * (plain + value), rank, "n"), Matrix(hidden, heads * value, "k")
    index = config.number("index_head_dim", default=0)
    if index:
        queries += (Matrix(index * config.number("index_n_heads", default=64), query or hidden),)
    most = config.number("index_topk", default=0) if index else 0
    return Attention(
        heads, 1, plain + rotary, value, (down, *queries, up, out), most, latent=rank + rotary, indexed=index
    )


def _recurrent(config: _Config, hidden: int) -> Attention:
    keys, values = config.number("linear_num_key_heads"), config.number("linear_num_value_heads")
    key, value = config.number("linear_key_head_dim"), config.number("linear_value_head_dim")
    inputs = Matrix(2 * keys * key + 2 * values * value + 2 * values, hidden, "n")
    return Attention(
        values, values, key, value, (inputs, Matrix(hidden, values * value, "k")), state=values * key * value
    )


def _feed_forward(config: _Config, hidden: int, layer: int) -> FeedForward:
    experts = config.number("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", default=0)
    inner = config.number("intermediate_size", "n_inner", "ffn_dim", default=0) or 4 * hidden
    step = config.number("decoder_sparse_step", "interleave_moe_layer_step", default=1) or 1
    if not experts or layer < config.number("first_k_dense_replace", default=0) or (layer + 1) % step:
        dense = config.number("intermediate_size_mlp", default=inner) if experts else inner
        return FeedForward(_gated(hidden, dense, _gates(config)))
    size = config.number("moe_intermediate_size", "expert_ffn_hidden_size", default=inner)
    shared = config.number("shared_expert_intermediate_size", default=0) or size * config.number(
        "n_shared_experts", "num_shared_experts", default=0
    )
    router = (Matrix(experts, hidden),)
    chosen = config.number("num_experts_per_tok", "num_experts_per_token", "moe_top_k", "experts_per_token")
    return FeedForward(router + (_gated(hidden, shared) if shared else ()), experts, chosen, _gated(hidden, size))


def _gates(config: _Config) -> bool:
    return config.values.get("model_type") not in ("gpt2", "opt", "gpt_neox", "phi", "falcon", "gptj", "bloom")


def _gated(hidden: int, inner: int, gates: bool = True) -> tuple[Matrix, ...]:
    return Matrix((2 if gates else 1) * inner, hidden, "n"), Matrix(hidden, inner, "k")


@cache
def bundled_models() -> dict[str, dict[str, Any]]:
    """Return the numbers of each model of models.toml by its name and by its names on the hub, in lower case."""
    table = toml_table(MODELS)
    complete = {name: _complete(table, name) for name in table}
    named = {hub.lower(): values for values in complete.values() for hub in values["hub"]}
    return {**complete, **named}


def _complete(table: Mapping[str, Any], name: str) -> dict[str, Any]:
    own = table[name]
    return {**(_complete(table, own["like"]) if "like" in own else {}), **own, "name": own.get("name", name)}
