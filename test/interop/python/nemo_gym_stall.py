"""A resources server of our own on the nemo-gym package: weighs goods and is paid by what was weighed. For test/interop."""

from fastapi import FastAPI, HTTPException, Request
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
from pydantic import BaseModel, Field


class Look(BaseModel):
    schluessel: str


class Count(BaseModel):
    ausdruck: str


class Seed(BaseSeedSessionRequest):
    stock: dict[str, int]


class Verify(BaseVerifyRequest):
    stock: dict[str, int]


class Stall(SimpleResourcesServer):
    ray_enabled = False
    config: BaseResourcesServerConfig
    sessions: dict[str, dict] = Field(default_factory=dict)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/nachschlagen")(self.look)
        app.post("/rechner")(self.count)
        return app

    async def seed_session(self, request: Request, body: Seed) -> BaseSeedSessionResponse:
        self.sessions[request.session[SESSION_ID_KEY]] = {"stock": body.stock, "answered": 0}
        return BaseSeedSessionResponse()

    async def look(self, request: Request, body: Look) -> dict:
        session = self.sessions[request.session[SESSION_ID_KEY]]
        if body.schluessel not in session["stock"]:
            raise HTTPException(404, "no such good")
        session["answered"] += 1
        return {"g": session["stock"][body.schluessel]}

    async def count(self, request: Request, body: Count) -> dict:
        self.sessions[request.session[SESSION_ID_KEY]]["answered"] += 1
        return {"n": len(body.ausdruck)}

    async def verify(self, request: Request, body: Verify) -> BaseVerifyResponse:
        session = self.sessions.pop(request.session[SESSION_ID_KEY])
        return BaseVerifyResponse(**body.model_dump(), reward=min(1.0, session["answered"] / 4))


serve(Stall, BaseResourcesServerConfig, "stall")
