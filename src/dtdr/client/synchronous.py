"""The client for programs without asyncio."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from dtdr.client import calls
from dtdr.client.answers import Learned, Mask, RemoteRanking, ServedModel, ServerError
from dtdr.client.calls import Call
from dtdr.demonstrations import Demonstration

if TYPE_CHECKING:
    from dtdr.integrations import anthropic, openai


class RemoteSession:
    """One query, encoded once on the server, and the calls made for it.

    A context manager: it is deleted on the server when the block ends.
    """

    def __init__(self, client: Client, identifier: str, query: str, history: Sequence[str]) -> None:
        self._client = client
        self.id = identifier
        self.query = query
        self.history: tuple[str, ...] = tuple(history)

    def call(self, *tools: str) -> Self:
        """Tell the session that tools were called."""
        answer = self._client.send(
            Call("POST", f"/v1/sessions/{self.id}/call", {"tools": list(tools)}, repeatable=False)
        )
        self.history = tuple(answer["history"])
        return self

    def rank(
        self,
        *,
        top_k: int | None = None,
        threshold: float | None = None,
        coverage: float | None = None,
        token_budget: int | None = None,
    ) -> RemoteRanking:
        """Rank the tools for the next step."""
        body = calls.selection(top_k, threshold, coverage, token_budget)
        answer = self._client.send(Call("POST", f"/v1/sessions/{self.id}/rank", body))
        return RemoteRanking.read(answer)

    def close(self) -> None:
        """Delete the session on the server; one that is gone already is no error."""
        try:
            self._client.send(Call("DELETE", f"/v1/sessions/{self.id}"))
        except ServerError as error:
            if error.status != 404:
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Client:
    """Asks a ``dtdr serve`` server. Thread-safe; a context manager that closes connections.

    Args:
        url: the server's address.
        key: an API key; ``$DTDR_API_KEY`` where none is given.
        model: the model that is meant where a call names none.
        timeout: seconds for one try.
        retries: how often a question is asked again when no answer came. What changes something
            on the server is asked again only if no connection was made.
        options: of ``httpx2.Client``, such as ``verify`` or ``transport``.

    Raises:
        InputError: the address is none.
        MissingExtraError: httpx2 is not installed.
    """

    def __init__(
        self,
        url: str = calls.DEFAULT_URL,
        *,
        key: str | None = None,
        model: str | None = None,
        timeout: float = 5.0,
        retries: int = 2,
        **options: Any,
    ) -> None:
        self._library = calls.http_library()
        self.url = calls.checked_url(url)
        self.model = model
        self.retries = retries
        self._http = self._library.Client(
            base_url=self.url, headers=calls.headers(key), timeout=timeout, **options
        )

    def rank(
        self,
        query: str,
        history: Sequence[str] = (),
        *,
        model: str | None = None,
        top_k: int | None = None,
        threshold: float | None = None,
        coverage: float | None = None,
        token_budget: int | None = None,
    ) -> RemoteRanking:
        """Rank the tools for the next step.

        Args:
            query: what the user asked for.
            history: names of the tools called so far, oldest first.
            model: one of the server's models.
            top_k: at most so many tools; 10 without any bound.
            threshold: only tools above this probability, at least one.
            coverage: the fewest tools that hold an acceptable one this often.
            token_budget: as many tools as fit into so many prompt tokens.

        Raises:
            InvalidRequestError: the server refused what was asked.
            ServerError: it could not answer, or was not reached.
        """
        chosen = calls.selection(top_k, threshold, coverage, token_budget)
        call = calls.rank_call(query, history, model or self.model, chosen)
        return RemoteRanking.read(self.send(call))

    def rank_batch(
        self,
        queries: Sequence[str],
        histories: Sequence[Sequence[str]],
        *,
        model: str | None = None,
        top_k: int | None = None,
        threshold: float | None = None,
        coverage: float | None = None,
        token_budget: int | None = None,
    ) -> list[RemoteRanking]:
        """Rank many steps with one request; as ``rank``."""
        chosen = calls.selection(top_k, threshold, coverage, token_budget)
        call = calls.batch_call(queries, histories, model or self.model, chosen)
        return [RemoteRanking.read(item) for item in self.send(call)["rankings"]]

    def session(
        self, query: str, history: Sequence[str] = (), *, model: str | None = None
    ) -> RemoteSession:
        """A session on the server, which encodes the query once."""
        answer = self.send(calls.session_call(query, history, model or self.model))
        return RemoteSession(self, str(answer["session"]), query, answer["history"])

    def mask_openai(
        self,
        request: Mapping[str, Any],
        *,
        form: openai.Form | None = None,
        policy: Mapping[str, Any] | None = None,
        model: str | None = None,
    ) -> Mask:
        """Mask the keywords of ``chat.completions.create`` or ``responses.create``.

        Args:
            request: with ``messages`` or ``input``, and ``tools``.
            form: as in ``dtdr.integrations.openai.masked``.
            policy: fields of ``dtdr.integrations.ToolPolicy``.
            model: one of the server's models.
        """
        call = calls.mask_call("openai", request, form, policy, model or self.model)
        return Mask.read(request, self.send(call))

    def mask_anthropic(
        self,
        request: Mapping[str, Any],
        *,
        form: anthropic.Form | None = None,
        policy: Mapping[str, Any] | None = None,
        model: str | None = None,
    ) -> Mask:
        """Mask the keywords of ``messages.create``; as ``mask_openai``."""
        call = calls.mask_call("anthropic", request, form, policy, model or self.model)
        return Mask.read(request, self.send(call))

    def feedback(
        self,
        demonstrations: Iterable[Demonstration | Mapping[str, Any]],
        *,
        model: str | None = None,
    ) -> Learned:
        """Teach a model; returns when it ranks with what it learned.

        Args:
            demonstrations: or their JSON objects, where a call may be a tool's name alone.
            model: one of the server's models, a dtdr-f.
        """
        return Learned.read(self.send(calls.feedback_call(demonstrations, model or self.model)))

    def models(self) -> list[ServedModel]:
        """The server's models."""
        answer = self.send(Call("GET", "/v1/models"))
        return [ServedModel.read(item) for item in answer["models"]]

    def reload(self, model: str) -> ServedModel:
        """Have a model's folder loaded again."""
        return ServedModel.read(self.send(calls.model_call("reload", model)))

    def save(self, model: str) -> ServedModel:
        """Have what a model learned written to its folder."""
        return ServedModel.read(self.send(calls.model_call("save", model)))

    def is_ready(self) -> bool:
        """Whether the server answers and is ready."""
        try:
            return bool(self.send(Call("GET", "/readyz"))["status"] == "ok")
        except ServerError:
            return False

    def send(self, call: Call) -> Any:
        """Send one request; the JSON of its answer, None where it has none."""
        attempt = 0
        while True:
            attempt += 1
            last = attempt > self.retries
            try:
                response = self._http.request(
                    call.method,
                    call.path,
                    json=call.body,
                    timeout=call.seconds or self._http.timeout,
                )
            except self._library.TransportError as error:
                unsent = isinstance(error, self._library.ConnectError)
                if last or not (call.repeatable or unsent):
                    raise calls.not_reached(self.url, error) from error
                time.sleep(calls.pause_before(attempt, None))
                continue
            pause = calls.pause_before(attempt, response.headers.get("retry-after"))
            again = call.repeatable and response.status_code in calls.AGAIN
            if last or not again or pause > calls.LONGEST_PAUSE:
                return calls.read(response.status_code, response.content)
            time.sleep(pause)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
