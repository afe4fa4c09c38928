"""``ElmoVectorizer``: texts to vectors the scikit-learn way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

from elmokit.core.errors import ConfigError
from elmokit.core.names import DEFAULT
from elmokit.tasks.estimator import Texts
from elmokit.tasks.model import load_encoder
from elmokit.text.tokenizing import check_texts
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.embeddings import Pooling
from elmokit.vectors.encoder import Encoder, FloatArray


@dataclass(eq=False, repr=False)
class ElmoVectorizer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turns texts into one vector each: a column of strings in, an array (n_texts, dim) out.

    >>> make_pipeline(ElmoVectorizer("english"), LogisticRegression()).fit(texts, labels)  # doctest: +SKIP

    It learns nothing from the texts. The encoder is opened when it is first needed; where it is given by
    name, pickles and other processes get the name, not the weights.

    Args:
        encoder: A bundled model, a folder that ``elmokit pretrain`` or ``elmokit baseline`` has made, or a
            loaded model.
        pooling: "sentence", the encoder's own sentence vector; or "mean", "max", "last" or "sif" over the
            words, as in ``Embeddings.sentence`` (of word vectors only "mean").
        layer: Pool one layer instead of a mix.
        weights: Weights of the mix; equal by default.
        normalize: Scale vectors to length 1.
    """

    encoder: str | Path | Encoder = DEFAULT
    _: KW_ONLY
    pooling: Pooling | Literal["sentence"] = "sentence"
    layer: int | None = None
    weights: Sequence[float] | None = None
    normalize: bool = False

    def fit(self, X: Texts, y: Any = None) -> ElmoVectorizer:  # noqa: N803 (scikit-learn's name)
        """Check the parameters; there is nothing to learn."""
        check_texts(X)
        self._vectors([])
        return self

    def transform(self, X: Texts) -> FloatArray:  # noqa: N803
        """One vector per text, (n_texts, dim); a text without a word gets zeros."""
        check_texts(X)
        vectors = self._vectors(list(X))
        units: FloatArray = F.normalize(torch.from_numpy(vectors), dim=1).numpy()
        return units if self.normalize else vectors

    def _vectors(self, texts: Sequence[Any]) -> FloatArray:
        encoder, layer, weights = self._encoder, self.layer, self.weights
        if isinstance(encoder, Elmo) and self.pooling != "sentence":
            chunks = chain([encoder.embed([])], encoder.chunks(texts))  # the first checks the parameters
            pooled = [out.sentence(self.pooling, layer=layer, weights=weights) for out in chunks]
            return np.concatenate(pooled)
        if self.pooling not in ("mean", "sentence") or layer is not None or weights is not None:
            raise ConfigError(
                "layer, weights and kinds of pooling are for the words of an ELMo.",
                remedy='Leave them out, or choose pooling="mean".',
            )
        return encoder.sentences(texts)

    @property
    def _encoder(self) -> Encoder:
        if not isinstance(self.encoder, str | Path):
            return self.encoder
        if getattr(self, "_opened", (None,))[0] != self.encoder:  # set_params may have changed the name
            self._opened = (self.encoder, load_encoder(self.encoder))
        return self._opened[1]

    @property
    def _n_features_out(self) -> int:
        return int(self._vectors([]).shape[1])

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_opened"}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        tags.requires_fit = False
        return tags
