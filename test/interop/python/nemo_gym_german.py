"""The German task as a resources server on the nemo-gym package, without Ray and without its head server, for test/interop."""

from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse
from german_task import TOOLS, Session
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.server_utils import SESSION_ID_KEY
from nemo_gym_serve import serve
from pydantic import Field


class Seed(BaseSeedSessionRequest):
    verifier_metadata: dict[str, Any]


class Verdict(BaseVerifyResponse):
    strict: bool
    parts: dict[str, float]
    tool_errors: int
    answer: str | None
    log: list[dict[str, Any]]


class German(SimpleResourcesServer):
    ray_enabled = False
    config: BaseResourcesServerConfig
    sessions: dict[str, Any] = Field(default_factory=dict)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        for name, _, _ in TOOLS:
            app.post(f"/{name}")(self.tool(name))
        return app

    def tool(self, name: str):
        async def call(request: Request) -> PlainTextResponse:
            session = self.sessions[request.session[SESSION_ID_KEY]]
            content, error = session.call(name, (await request.body()).decode("utf-8"))
            return PlainTextResponse(content, status_code=400 if error else 200)

        return call

    async def seed_session(self, request: Request, body: Seed) -> BaseSeedSessionResponse:
        self.sessions[request.session[SESSION_ID_KEY]] = Session(body.verifier_metadata)
        return BaseSeedSessionResponse()

    async def verify(self, request: Request, body: BaseVerifyRequest) -> Verdict:
        session = self.sessions.pop(request.session[SESSION_ID_KEY])
        said = [item for item in body.response.output if item.type == "message"][-1]
        final_text = "".join(part.text for part in said.content)
        invalid = int((body.response.metadata or {}).get("invalid_dispatches", "0"))
        return Verdict(**body.model_dump(), **session.verify(final_text, invalid))


serve(German, BaseResourcesServerConfig, "german")
