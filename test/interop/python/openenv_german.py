"""The German task as an environment of the OpenEnv package, served by uvicorn for test/interop."""

import json
import sys

import uvicorn
from german_task import TOOLS, Session, schema
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_types import (
    CallToolAction,
    CallToolObservation,
    ListToolsAction,
    ListToolsObservation,
    Tool,
    ToolError,
)
from openenv.core.env_server.types import Observation, State


class First(Observation):
    messages: list[dict[str, str]]


class German(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self.session = None
        self._s = State(episode_id=None, step_count=0)

    def reset(self, seed=None, episode_id=None, task=None, task_id=None, **kw):
        self.session = Session(task)
        self._s = State(episode_id=episode_id, step_count=0)
        return First(messages=self.session.messages(), done=False, reward=None)

    def step(self, action, timeout_s=None, **kw):
        if isinstance(action, ListToolsAction):
            tools = [Tool(name=name, description=text, input_schema=schema(own)) for name, text, own in TOOLS]
            return ListToolsObservation(tools=tools, done=False, reward=None)
        self._s.step_count += 1
        name = action.tool_name
        if name == "verify":
            verdict = self.session.verify(action.arguments["final_text"], action.arguments["invalid_dispatches"])
            return CallToolObservation(tool_name=name, result={"data": verdict}, reward=verdict["reward"], done=True)
        # The text as the policy wrote it, where the client sends it.
        text = action.metadata.get("arguments_json") or json.dumps(action.arguments, ensure_ascii=False)
        content, error = self.session.call(name, text)
        if not error:
            return CallToolObservation(tool_name=name, result={"data": content, "is_error": False}, done=False, reward=None)
        failed = ToolError(error_type="execution_error", message=content)
        return CallToolObservation(tool_name=name, error=failed, done=False, reward=None)

    @property
    def state(self):
        return self._s


app = create_app(German, CallToolAction, CallToolObservation, env_name="german", max_concurrent_envs=16)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
