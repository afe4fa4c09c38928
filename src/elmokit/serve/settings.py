"""Settings of a server, in a module of their own so that help needs no server library."""

from __future__ import annotations

from dataclasses import dataclass

from elmokit.core.config import Config, option
from elmokit.core.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class ServeConfig(Config):
    """Where a server listens, who may use it, and how much one request may ask for."""

    host: str = option("127.0.0.1", "Address to listen on; 127.0.0.1 is reachable from this machine only.")
    port: int = option(8000, "Port to listen on; 0 picks a free one.", at_least=0, at_most=65535)
    token: str = option("", "Secret that clients of the API must send (Authorization: Bearer ...).")
    cors: str = option("", "Other sites whose pages may use the API, separated by commas.")
    max_body: int = option(1 << 20, "Largest request in bytes.", at_least=1024)
    max_texts: int = option(256, "Most texts in a request.", at_least=1)
    max_characters: int = option(20_000, "Longest text in characters.", at_least=1)
    max_words: int = option(20_000, "Most words in all texts of a request.", at_least=1)
    max_waiting: int = option(
        200_000, "Most words in waiting requests; further requests are refused.", at_least=1
    )
    corpus_words: int = option(50_000, "Words of the corpus to search for neighbors.", at_least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all("!" <= character <= "~" for character in self.token):
            raise ConfigError(
                "The token has a space or another character that an HTTP header cannot hold.",
                remedy="Use the letters a to z, digits and punctuation.",
            )
