"""How a server listens and what it takes (apart from the server, so that help needs no library)."""

from __future__ import annotations

from dataclasses import dataclass

from elmokit.core.config import Config, option
from elmokit.core.errors import ConfigError

__all__ = ["ServeConfig"]


@dataclass(frozen=True, kw_only=True)
class ServeConfig(Config):
    """Where a server listens, who may ask, and how much at once."""

    host: str = option("127.0.0.1", "Address to listen on; 127.0.0.1 is reached from this machine alone.")
    port: int = option(8000, "Port to listen on; 0 takes a free one.", at_least=0, at_most=65535)
    token: str = option("", "Word that clients of the API must give (Authorization: Bearer ...).")
    cors: str = option("", "Addresses of other sites whose pages may ask, with commas; none unless given.")
    max_body: int = option(1 << 20, "Largest request, in bytes.", at_least=1024)
    max_texts: int = option(256, "Most texts in a request.", at_least=1)
    max_characters: int = option(20_000, "Longest text, in characters.", at_least=1)
    max_words: int = option(20_000, "Most words in all texts of a request.", at_least=1)
    max_waiting: int = option(
        200_000, "Most words that wait; beyond it, requests are turned away.", at_least=1
    )
    corpus_words: int = option(50_000, "Words of the corpus in which neighbours are looked for.", at_least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all("!" <= sign <= "~" for sign in self.token):
            raise ConfigError(
                "The token holds a space or a letter that no HTTP header can hold.",
                remedy="Make one of plain letters (a to z), digits and signs.",
            )

    @property
    def origins(self) -> list[str]:
        """The sites whose pages may ask."""
        return [part.strip().rstrip("/") for part in self.cors.split(",") if part.strip()]
