"""Requests and answers of the API, as described by its OpenAPI schema."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _whole(value: Any) -> Any:
    """To JSON, 2.0 is the integer 2."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Weight = Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False)]
Whole = Annotated[int, BeforeValidator(_whole)]
Place = Annotated[int, Field(ge=0), BeforeValidator(_whole)]
Count = Annotated[int, Field(ge=1, le=20), BeforeValidator(_whole)]
Layer = Annotated[Whole | None, Field(description="One layer: 0 is the token encoder, -1 the top.")]
Weights = Annotated[list[Weight] | None, Field(description="The weight of each layer, lowest first.")]
_EXAMPLES: Any = ["The bank raised its rates.", "He sat on the river bank."]


class Request(BaseModel):
    """What all requests have in common."""

    model_config = ConfigDict(extra="forbid", strict=True)
    model: str | None = Field(
        None, description="Name of a model (see /v1/models); the first by default.", max_length=200
    )


class TokensRequest(Request):
    """Texts to split into words."""

    texts: list[str] = Field(min_length=1, examples=[_EXAMPLES])


class TokensAnswer(BaseModel):
    """The words of each text, as the model sees them."""

    model: str
    tokens: list[list[str]]


class EmbedRequest(Request):
    """Texts to turn into vectors: an equal mix of the layers unless a layer or weights are given."""

    texts: list[str | list[str]] = Field(
        min_length=1, description="Texts, or lists of words.", examples=[_EXAMPLES]
    )
    vectors: Literal["words", "mean", "max", "last", "sif"] = Field(
        "words", description="A vector for each word, or one for each text, pooled in this way."
    )
    layer: Layer = None
    weights: Weights = None
    state: Literal["zero", "warm"] = Field("zero", description="The state that each text starts from.")
    format: Literal["json", "npy"] = Field(
        "json",
        description="npy: one NumPy array; the words of text i are its rows from offset i to offset i + 1 "
        "(header X-Elmokit-Offsets).",
    )


class EmbedAnswer(TokensAnswer):
    """Vectors. vectors[i] is text i: a list of numbers; for words, one such list for each word."""

    vectors: list[list[float] | list[list[float]]]
    notes: list[str]


class SimilarRequest(Request):
    """A word of a text, to compare with others in their contexts."""

    texts: list[str] = Field(min_length=1, max_length=50, examples=[_EXAMPLES])
    text: Place = Field(0, description="The number of the word's text, from 0.")
    position: Place | None = Field(None, description="The word's place in it, from 0; give this or word.")
    word: str | None = Field(None, max_length=200, examples=["bank"])
    layer: Layer = None
    weights: Weights = None
    k: Whole = Field(8, ge=1, le=100, description="How many neighbors to return.")
    different: bool = Field(False, description="Leave out the same word among the neighbors.")


class Snippet(BaseModel):
    """A word in its context."""

    text: int
    position: int = Field(description="The word's place in its text, from 0.")
    start: int = Field(description="The place of the first of ``words`` in the text, from 0.")
    words: list[str] = Field(description="The word and those around it.")


class Neighbor(Snippet):
    """A word of the corpus in its context."""

    score: float
    word: str


class Sibling(BaseModel):
    """The same word elsewhere in the texts: its cosine similarity layer by layer, and in the mix."""

    text: int
    position: int
    word: str
    layers: list[float]
    score: float


class Point(Snippet):
    """An occurrence on the map."""

    x: float
    y: float
    source: Literal["yours", "corpus"]


class Map(BaseModel):
    """The occurrences of a word in the plane in which they differ most."""

    points: list[Point]
    explained: list[float] = Field(description="The share of the variance that each axis shows.")


class SimilarAnswer(TokensAnswer):
    """Words like a word in its context."""

    word: str
    text: int
    position: int
    neighbors: list[Neighbor]
    siblings: list[Sibling]
    map: Map
    notes: list[str]


class SearchRequest(Request):
    """A query, to find texts that are like it."""

    query: str = Field(examples=[_EXAMPLES[0]])
    texts: list[str] | None = Field(
        None,
        description="Texts to search; by default those that the server was given (see /v1/models).",
        examples=[["Interest rates are rising.", "The river rose overnight."]],
        min_length=1,
    )
    k: Whole = Field(5, ge=1, le=100, description="How many texts to return.")


class FoundText(BaseModel):
    """A text like the query: its number among all, its cosine with the query, and how it begins."""

    id: str
    index: int
    score: float
    text: str = Field(description="Its first 2,000 characters.")


class SearchAnswer(BaseModel):
    """The texts most like the query, best first."""

    model: str
    n_texts: int = Field(description="How many texts were compared.")
    hits: list[FoundText]


class SimilarityRequest(Request):
    """Two texts to compare, by an equal mix of the layers unless a layer or weights are given."""

    text: str = Field(examples=["A plane is taking off."])
    other: str = Field(examples=["An air plane leaves the ground."])
    layer: Layer = None
    weights: Weights = None


class SimilarityAnswer(TokensAnswer):
    """How similar two texts are, and their words."""

    score: float = Field(description="The cosine of their sentence vectors; 0 for a text without a word.")
    pairs: list[list[int]] = Field(
        description="Words that are nearest to each other: the place, from 0, in the text and in the other."
    )
    cosines: list[list[float]] = Field(
        description="Cosine of every word of one text with every word of the other."
    )
    notes: list[str]


class SensesRequest(Request):
    """A word whose uses to group by sense."""

    word: str = Field(max_length=200, examples=["bank"])
    texts: list[str] | None = Field(
        None,
        description="Texts with the word; by default the server's corpus (see /v1/models).",
        examples=[_EXAMPLES],
        min_length=1,
    )
    k: Count | None = Field(None, description="Number of senses; default: chosen by silhouette score.")
    layer: Layer = None


class SenseFacts(BaseModel):
    """Uses that belong together: their share of all, typical words, and the uses nearest to their mean."""

    name: str
    n_uses: int
    share: float
    keywords: list[str]
    examples: list[Neighbor]


class Use(Snippet):
    """A use of the word on the map."""

    sense: str
    x: float
    y: float


class SensesAnswer(BaseModel):
    """The senses of a word, the most frequent first."""

    model: str
    word: str
    compared_by: str
    n_found: int = Field(description="Sentences with the word; copies count once.")
    silhouette: float | None = Field(description="How clear the grouping is, -1 to 1; null for one sense.")
    senses: list[SenseFacts]
    uses: list[Use]
    explained: list[float] = Field(description="The share of the variance that each axis of the map shows.")
    notes: list[str]


class LayersRequest(Request):
    """A text whose layers to look at."""

    text: str = Field(examples=_EXAMPLES)


class LayerFacts(BaseModel):
    """A layer: its weight in the mix, its share of the mix (weight times length), its difference from the
    layer below (turn: 1 - cosine), and, for a classifier, the probability of the class without this layer."""

    layer: int
    name: str
    weight: float
    share: float
    turn: float | None
    without: float | None


class LayersAnswer(BaseModel):
    """What each layer contributes."""

    model: str
    mix: str
    tokens: list[str]
    layers: list[LayerFacts]
    shares: list[list[float]] = Field(description="For each word, the share of each layer in its vector.")
    label: str | None
    probability: float | None


class PredictRequest(Request):
    """Texts to predict the labels of."""

    texts: list[str | dict[str, str | int]] = Field(
        min_length=1,
        description="Texts; for a task with several fields, objects with a text for each field.",
        examples=[_EXAMPLES],
    )
    influence: bool = Field(
        False, description="For classes: also how much each word adds to the probability of the class."
    )


class Influence(BaseModel):
    """How much each word of a text adds to the probability of the most probable class."""

    tokens: list[str]
    values: list[float]


class PredictResult(BaseModel):
    """A prediction: the columns of the model's task. For classes these are prediction, probability, and
    probabilities of all classes; of an SVM, prediction, score and scores."""

    model_config = ConfigDict(extra="allow")
    influence: Influence | None = None


class PredictAnswer(BaseModel):
    """Predictions, in the order of the texts."""

    model: str
    results: list[PredictResult]
    notes: list[str]


class ModelFacts(BaseModel):
    """A model of this server."""

    name: str
    task: str | None = Field(description="What it predicts; null for a language model.")
    fields: list[str] = Field(description="The texts that its task reads.")
    classes: list[str]
    contextual: bool
    n_layers: int
    dim: int
    corpus: str
    corpus_texts: int
    search: str = Field(description="Name of the texts that /v1/search looks in by default; empty if none.")
    search_texts: int
    perplexity: float | None
    license: str


class ReportFacts(BaseModel):
    """The report of a comparison."""

    name: str
    address: str


class ModelList(BaseModel):
    """All models and reports; the first model is the default."""

    version: str
    models: list[ModelFacts]
    reports: list[ReportFacts]
    limits: dict[str, int]


class ErrorAnswer(BaseModel):
    """What is wrong (message), and what to do about it (remedy)."""

    error: dict[Literal["message", "remedy"], str]
