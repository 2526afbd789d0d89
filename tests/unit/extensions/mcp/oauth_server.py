"""An MCP server over HTTP that wants a login, with its own authorization server: the SDK's, over
tokens in memory.

    python oauth_server.py FILE [KIND]

Writes its address into FILE. KIND: `mute` shows a page that never leads back, `refuses` says no,
`short` gives tokens that have run out at once and revokes none, `given` knows the client `mine` and
registers nobody, `open` wants no login.
"""

import secrets
import sys
import time
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import (
    AuthSettings,
    ClientRegistrationOptions,
    RevocationOptions,
)
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

KIND = sys.argv[2] if len(sys.argv) > 2 else ""


class Provider(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Says yes to everybody at once."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        given = {
            "client_id": "mine",
            "client_secret": "s3cret-of-mine",
            "redirect_uris": ["http://127.0.0.1:1/x"],
        }
        whole = {**given, "token_endpoint_auth_method": "client_secret_post"}
        self.clients = {"mine": _AnyPort.model_validate(whole)} if KIND == "given" else {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.tokens: dict[str, AccessToken] = {}
        self.renewing: dict[str, RefreshToken] = {}

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        assert client_info.client_id
        self.clients[client_info.client_id] = client_info

    async def authorize(
        self, client: OAuthClientInformationFull, params: AuthorizationParams
    ) -> str:
        if KIND == "mute":
            return f"{self.issuer}/nowhere"
        if KIND == "refuses":
            said = {
                "error": "access_denied",
                "error_description": "not today",
                "state": params.state,
            }
            return construct_redirect_uri(str(params.redirect_uri), **said)
        code = AuthorizationCode(
            code=secrets.token_hex(),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id or "",
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(
        self, client: Any, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: Any, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        return self._token(client)

    async def load_refresh_token(self, client: Any, refresh_token: str) -> RefreshToken | None:
        return self.renewing.get(refresh_token)

    async def exchange_refresh_token(
        self, client: Any, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        print("renewed", flush=True)
        return self._token(client)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.tokens.get(token)

    async def revoke_token(self, token: Any) -> None:
        print("revoked", type(token).__name__, flush=True)
        self.tokens.clear()

    def _token(self, client: OAuthClientInformationFull) -> OAuthToken:
        name, renewing = secrets.token_hex(), secrets.token_hex()
        self.tokens[name] = AccessToken(token=name, client_id=client.client_id or "", scopes=[])
        self.renewing[renewing] = RefreshToken(
            token=renewing, client_id=client.client_id or "", scopes=[]
        )
        return OAuthToken(
            access_token=name, refresh_token=renewing, expires_in=1 if KIND == "short" else 3600
        )


class _AnyPort(OAuthClientInformationFull):
    """A client that may come back to any port of this machine."""

    def validate_redirect_uri(self, redirect_uri: Any) -> Any:
        return redirect_uri


def main() -> None:
    socket = uvicorn.Config("", port=0).bind_socket()
    address = f"http://127.0.0.1:{socket.getsockname()[1]}"
    auth = AuthSettings.model_validate(
        {
            "issuer_url": address,
            "resource_server_url": f"{address}/mcp",
            "validate_token_resource": False,
            "client_registration_options": ClientRegistrationOptions(enabled=KIND != "given"),
            "revocation_options": RevocationOptions(enabled=KIND != "short"),
        }
    )
    locked: dict[str, Any] = (
        {} if KIND == "open" else {"auth_server_provider": Provider(address), "auth": auth}
    )
    server = MCPServer("locked", **locked)

    @server.tool()
    def hello() -> str:
        return "hello"

    config = uvicorn.Config(server.streamable_http_app(), log_level="error", lifespan="on")
    Path(sys.argv[1]).write_text(f"{address}/mcp")
    uvicorn.Server(config).run([socket])


if __name__ == "__main__":
    main()
