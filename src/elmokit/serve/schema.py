"""What clients send and get, as it stands in the OpenAPI schema."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

__all__ = [
    "ClassifyAnswer",
    "ClassifyRequest",
    "EmbedAnswer",
    "EmbedRequest",
    "ErrorAnswer",
    "Health",
    "LayersAnswer",
    "LayersRequest",
    "ModelFacts",
    "ModelList",
    "SimilarAnswer",
    "SimilarRequest",
    "TokensAnswer",
    "TokensRequest",
]


def _whole(value: Any) -> Any:
    """To JSON, 2.0 is the integer 2."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Weight = Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False)]
Whole = Annotated[int, BeforeValidator(_whole)]
Place = Annotated[int, Field(ge=0), BeforeValidator(_whole)]
_MODEL = Field(None, description="Name of a model (see /v1/models); the first unless given.", max_length=200)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class TokensRequest(_Strict):
    """Texts to be cut into words."""

    model: str | None = _MODEL
    texts: list[str] = Field(min_length=1, examples=[["The bank raised its rates."]])


class TokensAnswer(BaseModel):
    """The words of each text, as the model sees them."""

    model: str
    tokens: list[list[str]]


class EmbedRequest(_Strict):
    """Texts to be turned into vectors: an equal mix of the layers, unless a layer or weights are given."""

    model: str | None = _MODEL
    texts: list[str | list[str]] = Field(
        min_length=1, description="Raw texts, or lists of words.", examples=[["The bank raised its rates."]]
    )
    vectors: Literal["words", "mean", "max", "last", "sif"] = Field(
        "words", description="A vector for each word, or one for each text, pooled in this way."
    )
    layer: Whole | None = Field(None, description="One layer: 0 is the token encoder, -1 the top.")
    weights: list[Weight] | None = Field(None, description="How much each layer counts, lowest first.")
    all_layers: bool = Field(False, description="Every layer instead of a mix; for words only.")
    state: Literal["zero", "warm"] = Field("zero", description="What each text starts from.")
    format: Literal["json", "npy"] = Field(
        "json",
        description="npy: one NumPy array; the words of text i are its rows from offset i to offset i + 1 "
        "(header X-Elmokit-Offsets).",
    )


class EmbedAnswer(BaseModel):
    """Vectors. vectors[i] is text i: a list of numbers; for words, one such list for each word; with all
    layers, one for each layer of each word."""

    model: str
    tokens: list[list[str]]
    vectors: list[list[float] | list[list[float]] | list[list[list[float]]]]
    notes: list[str]


class SimilarRequest(_Strict):
    """A word of a text, to be compared with others in their contexts."""

    model: str | None = _MODEL
    texts: list[str] = Field(
        min_length=1, max_length=50, examples=[["The bank raised its rates.", "He sat on the river bank."]]
    )
    text: Place = Field(0, description="Which text the word is in.")
    position: Place | None = Field(None, description="Which word of it; give this or word.")
    word: str | None = Field(None, max_length=200, examples=["bank"])
    layer: Whole | None = Field(None, description="Compare by one layer: 0 is the token encoder, -1 the top.")
    weights: list[Weight] | None = Field(None, description="How much each layer counts, lowest first.")
    k: Whole = Field(8, ge=1, le=100, description="Neighbours to find.")
    different: bool = Field(False, description="Leave out the same word among the neighbours.")


class Neighbour(BaseModel):
    """A word of the corpus in its context."""

    score: float
    word: str
    words: list[str] = Field(description="What stands around it, itself among them.")
    start: int = Field(description="Which word of the text the first of ``words`` is, from 0.")
    position: int = Field(description="Which word of the text it is, from 0.")
    text: int


class Sibling(BaseModel):
    """The same word elsewhere in the texts given: how alike, layer by layer and in the mix asked for."""

    text: int
    position: int
    word: str
    layers: list[float]
    score: float


class Point(BaseModel):
    """An occurrence on the map."""

    x: float
    y: float
    source: Literal["yours", "corpus"]
    text: int
    position: int
    start: int
    words: list[str]


class Plane(BaseModel):
    """The occurrences of a word in the plane in which they differ most."""

    points: list[Point]
    explained: list[float]


class SimilarAnswer(BaseModel):
    """What is like a word in its context."""

    model: str
    tokens: list[list[str]]
    word: str
    text: int
    position: int
    neighbours: list[Neighbour]
    siblings: list[Sibling]
    map: Plane
    notes: list[str]


class LayersRequest(_Strict):
    """A text whose layers are to be looked at."""

    model: str | None = _MODEL
    text: str = Field(examples=["The bank raised its rates."])


class LayerFacts(BaseModel):
    """A layer: its factor in the mix, the mean length of its vectors, its share of the mix (factor times
    length), how far it turns a word's vector from the layer below (1 - cosine), and, for a classifier, the
    probability of the class chosen when this layer is left out."""

    layer: int
    name: str
    weight: float
    length: float
    share: float
    turn: float | None
    without: float | None


class LayersAnswer(BaseModel):
    """What each layer contributes."""

    model: str
    mix: str
    tokens: list[str]
    layers: list[LayerFacts]
    shares: list[list[float]] = Field(
        description="Of each word, the share of each layer in its mixed vector."
    )
    label: str | None
    probability: float | None


class ClassifyRequest(_Strict):
    """Texts to be classified."""

    model: str | None = _MODEL
    texts: list[str] = Field(min_length=1, examples=[["The bank raised its rates."]])
    influence: bool = Field(
        False, description="Say how much each word speaks for the class: what its absence would cost."
    )


class Influence(BaseModel):
    """How much each word of a text adds to the probability of the class chosen."""

    tokens: list[str]
    values: list[float]


class ClassAnswer(BaseModel):
    """A text's class."""

    label: str
    probabilities: dict[str, float]
    influence: Influence | None = None


class ClassifyAnswer(BaseModel):
    """Classes of texts, in the order in which they were given."""

    model: str
    results: list[ClassAnswer]
    notes: list[str]


class ModelFacts(BaseModel):
    """A model that this server has."""

    name: str
    kind: Literal["encoder", "classifier"]
    contextual: bool
    n_layers: int
    dim: int
    classes: list[str]
    multilabel: bool
    weights: list[float]
    warm: bool
    corpus: str
    corpus_texts: int
    perplexity: float | None
    licence: str


class ReportFacts(BaseModel):
    """A comparison's report that this server has."""

    name: str
    title: str
    address: str


class ModelList(BaseModel):
    """All models and reports; the first model is the one meant unless another is asked for."""

    version: str
    models: list[ModelFacts]
    reports: list[ReportFacts]
    limits: dict[str, int]


class Health(BaseModel):
    """The server is there."""

    status: Literal["ok"]
    version: str


class Problem(BaseModel):
    """What is wrong, and what to do about it."""

    message: str
    remedy: str = ""


class ErrorAnswer(BaseModel):
    """An answer that is none."""

    error: Problem
