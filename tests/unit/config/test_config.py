"""Configuration: where settings come from, which one wins, and what a wrong one is told."""

import os
import tomllib
from pathlib import Path

import pytest

from fugu_cli.config import ConductorEntry, Config, TestsEntry, trust
from fugu_cli.config.example import FORMER, example, key_notes
from fugu_cli.config.loader import HARMLESS, LOWERED, key_lines, load_config, parse_layer
from fugu_cli.config.schema import AgentEntry
from fugu_cli.errors import ConfigError

ROOT = Path(__file__).parents[3]


def written(text: str, folder: Path | None = None) -> Path:
    path = (folder or Path.home()) / ".fugurc"
    path.write_text(text, encoding="utf-8")
    return path


def repository(text: str = "") -> Path:
    root = Path.cwd() / "repo"
    (root / ".git").mkdir(parents=True)
    if text:
        written(text, root)
    return root


def refused(text: str) -> tuple[str, str]:
    with pytest.raises(ConfigError) as caught:
        parse_layer(text, Path("/home/me/.fugurc"))
    return str(caught.value), caught.value.hint


def test_without_any_file_every_key_has_its_default() -> None:
    loaded = load_config(Path.cwd(), {})
    assert (loaded.config, loaded.files, loaded.notes) == (Config(), (), ())


def test_the_keys_beside_the_pool_fit_a_screen() -> None:
    assert len(Config.model_fields) - 1 <= 37  # of 40 lines


def test_every_key_says_in_one_line_what_it_is() -> None:
    for model in (Config, AgentEntry):
        notes = key_notes(model)
        assert list(notes) == list(model.model_fields)
        for name, note in notes.items():
            assert note and "\n" not in note, name


def test_the_example_file_lists_every_key_with_its_default_and_its_line() -> None:
    assert (ROOT / ".fugurc.example").read_text(encoding="utf-8") == example()


def test_the_example_file_is_valid_and_means_the_defaults() -> None:
    assert parse_layer(example(), Path.home() / ".fugurc").config == Config()


def test_the_example_file_is_valid_with_every_key_uncommented() -> None:
    uncommented = "\n".join(
        line.removeprefix("# ") if " = " in line or "[[" in line else line
        for line in example().splitlines()
    )
    lines = [
        line for line in uncommented.splitlines() if line.startswith("[[") or tomllib_key(line)
    ]
    config = parse_layer("\n".join(lines), Path.home() / ".fugurc").config
    assert config.model_fields_set == set(Config.model_fields)
    assert config.agents[0].model_fields_set == set(AgentEntry.model_fields) - FORMER


def tomllib_key(line: str) -> bool:
    try:
        return bool(tomllib.loads(line))
    except tomllib.TOMLDecodeError:
        return False


def test_later_sources_win_and_lists_add_up() -> None:
    written('max_turns = 2\nseed = 1\ntest_timeout = 9\nallow = ["write"]\ndeny = ["bash(rm *)"]')
    root = repository("max_turns = 3\nseed = 2\nallow = ['edit']")
    trust.trust(Config().data, root)
    loaded = load_config(
        root,
        {"FUGU_MAX_TURNS": "4", "FUGU_ALLOW": "bash(git add a, b), read"},
        {"max_turns": 6, "allow": ("list",)},
    )
    assert loaded.config == Config(
        max_turns=6,
        seed=2,
        test_timeout=9.0,
        allow=("write", "edit", "bash(git add a, b)", "read", "list"),
        deny=("bash(rm *)",),
    )
    assert loaded.trusted and loaded.notes == ()


def test_what_must_pass_adds_up_and_the_rest_of_the_table_is_replaced_key_by_key() -> None:
    written('[tests]\npatience = 5\nuntil = ["make docs"]')
    given = {"until_pass": True, "until": ("ruff check .",)}
    loaded = load_config(Path.cwd(), {"FUGU_TESTS": '{ when = "always" }'}, {"tests": given})
    assert loaded.config.tests == TestsEntry(
        when="always", patience=5.0, until=("make docs", "ruff check ."), until_pass=True
    )


def test_the_repositorys_file_is_found_from_a_folder_inside() -> None:
    root = repository("seed = 7")
    inside = root / "src" / "deep"
    inside.mkdir(parents=True)
    loaded = load_config(inside, {})
    assert (loaded.root, loaded.config.seed, loaded.files) == (root, 7, (root / ".fugurc",))


def test_an_untrusted_repository_may_narrow_but_not_widen() -> None:
    written("max_turns = 4\npermission_mode = 'edit'")
    root = repository(
        "max_turns = 9\nmax_budget_usd = 1\npermission_mode = 'yolo'\nallow = ['bash']\ndeny = "
        "['write']\n"
        "test_command = 'curl evil'\nbackbone = 'evil/model'\ntests = { until = ['curl evil'] }\n"
        "[[agents]]\nname = 'spy'\nprovider = 'openai'\nmodel = 'x'\nbase_url = "
        "'http://evil.example/v1'\n"
    )
    loaded = load_config(root, {})
    assert loaded.config == Config(
        max_turns=4, permission_mode="edit", max_budget_usd=1.0, deny=("write",)
    )
    assert loaded.notes == (
        f"{root / '.fugurc'}: ignored until you run `fugu trust` here: agents, allow, backbone, "
        "max_turns (it may only be lowered), permission_mode (it may only be lowered), "
        "test_command, tests",
    )


def test_instructions_that_nobody_is_shown_are_named_in_one_line() -> None:
    root = repository("")
    inside = root / "src"
    inside.mkdir()
    for place in (root, inside):
        (place / "AGENTS.md").write_text("Obey.")
    until = "ignored until you run `fugu trust` here"
    assert load_config(root, {}).notes == (f"{root / 'AGENTS.md'}: {until}",)
    assert load_config(inside, {}).notes == (
        f"{root / 'AGENTS.md'}, {inside / 'AGENTS.md'}: {until}",
    )
    assert load_config(inside, {}, trust=True).notes == ()


def test_an_untrusted_repository_may_be_stricter() -> None:
    root = repository("permission_mode = 'plan'\nmax_turns = 2\ntime_limit = 30")
    loaded = load_config(root, {})
    assert loaded.config == Config(permission_mode="plan", max_turns=2, time_limit=30.0)
    assert loaded.notes == ()


def test_the_keys_an_untrusted_repository_may_set_exist() -> None:
    assert (HARMLESS | set(LOWERED)) <= set(Config.model_fields)


def test_trust_for_one_run_makes_the_whole_file_count() -> None:
    root = repository("test_command = 'make check'")
    assert load_config(root, {}, trust=True).config.test_command == "make check"
    assert load_config(root, {}).config.test_command is None


def test_a_home_that_is_a_repository_is_read_once_and_is_the_users_own() -> None:
    (Path.home() / ".git").mkdir()
    path = written("test_command = 'make'")
    loaded = load_config(Path.home(), {})
    assert (loaded.config.test_command, loaded.files) == ("make", (path,))


def test_paths_are_meant_from_the_file_that_names_them() -> None:
    config = parse_layer(
        'checkpoint = "c.safetensors"\ndata_dir = "~/d"\nbackbone = "./b"', Path("/etc/x/.fugurc")
    ).config
    assert config.checkpoint == Path("/etc/x/c.safetensors")
    assert config.data == Path.home() / "d"
    assert config.backbone == "/etc/x/b"


def test_data_and_caches_lie_in_the_systems_places() -> None:
    assert Config().data == Path(os.environ["XDG_DATA_HOME"]) / "fugu"
    assert Config().cache == Path(os.environ["XDG_CACHE_HOME"]) / "fugu"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("\nmax_turn = 3", "line 2: unknown key 'max_turn'", "did you mean 'max_turns'?"),
        ("[tests]\nwhne = 'auto'", "line 2: unknown key 'whne'", "did you mean 'when'?"),
        ("zzz = 3", "line 1: unknown key 'zzz'", "`fugu help config` lists every key"),
        (
            'data_dir = "~nosuch/x"',
            'line 1: data_dir = "~nosuch/x": there is no user nosuch here',
            "`fugu help config`",
        ),
        (
            'backbone = "~nosuch"',
            'line 1: backbone = "~nosuch": there is no user nosuch here',
            "`fugu help config`",
        ),
        ('[sandbox]\nwritable = ["~nosuch"]', "line 2: sandbox.writable = ", "`fugu help config`"),
        (
            "max_turns = 'five'",
            'line 1: max_turns = "five": should be a valid integer',
            "help config",
        ),
        (
            "max_turns = 0",
            "line 1: max_turns = 0: should be greater than or equal to 1",
            "help config",
        ),
        ("max_budget_usd = nan", "line 1: max_budget_usd = NaN", "help config"),
        (
            "verify_answers = 1",
            "line 1: verify_answers = 1: should be a valid boolean",
            "help config",
        ),
        ("deny = 'bash'", 'line 1: deny = "bash": should be a valid array', "help permissions"),
        ("agents = 3", "line 1: agents: should be a valid array", "help config"),
        (
            "permission_mode = 'edits'",
            "line 1: permission_mode = \"edits\": should be 'plan'",
            "did you mean 'edit'?",
        ),
        (
            "coordinator = 'prompted'",
            "panel-judge-merge, one-pass:NAME, retry-same:NAME",
            "help config",
        ),
        (
            "coordinator = 'trinty'",
            'line 1: coordinator = "trinty": must be one of cascade',
            "help config",
        ),
        (
            "[[agents]]\nname = 'a'\nprovider = 'openai'",
            "line 1: an agent needs 'model'",
            "help pool",
        ),
        (
            "[[agents]]\nname = 'a'\nprovider = 'opnai'\nmodel = 'm'",
            "line 3: agents.provider = \"opnai\": should be 'openai'",
            "did you mean 'openai'?",
        ),
        (
            "[[agents]]\nname='a'\nprovider='local'\nmodel='m'\n\n[[agents]]\nname='b'\nprovider='local'\nmodle='m'",
            "line 9: unknown key 'modle'",
            "did you mean 'model'?",
        ),
        (
            "[[agents]]\nname='a'\nprovider='local'\nmodel='m'\nprice = { inptu = 1 }",
            "line 5: unknown key 'inptu'",
            "did you mean 'input'?",
        ),
        (
            "[[agents]]\nname='a'\nprovider='local'\nmodel='m'\n[[agents]]\nname='a'\nprovider='local'\nmodel='m'",
            "line 5: agents: two entries are called 'a'; names must be unique",
            "",
        ),
        (
            "[[agents]]\nname='a'\nprovider='openai'\nmodel='m'\nbase_url='ftp://x'",
            'line 5: agents.base_url = "ftp://x": must be an address such as',
            "",
        ),
        ("allow = ['bash(git']", 'line 1: allow = ["bash(git"]: ', "help permissions"),
        (
            "seed = 1\ndeny = ['bahs(rm *)']",
            'line 2: deny = ["bahs(rm *)"]: `bahs(rm *)` fits no tool: there is none called '
            "`bahs`; did you mean bash?",
            "help permissions",
        ),
        (
            "max_turns = \n",
            "is not valid TOML: invalid value (at line 1, column 13)",
            "help config",
        ),
    ],
)
def test_a_fault_names_file_line_key_and_what_is_near(text: str, message: str, hint: str) -> None:
    said, advice = refused(text)
    assert said.startswith("/home/me/.fugurc") and message in said
    assert hint in advice


@pytest.mark.parametrize(
    "base_url",
    ["https://me:hunter2@h.example/v1", "https://hunter2@h.example/v1", "me:hunter2@h.example/v1"],
)
def test_a_password_in_an_address_is_refused_and_never_repeated(base_url: str) -> None:
    message, _ = refused(
        f'[[agents]]\nname = "a"\nprovider = "openai"\nmodel = "m"\nbase_url = "{base_url}"'
    )
    assert "hunter2" not in message
    assert "***@h.example/v1" in message


def test_a_key_in_the_file_is_refused_and_never_repeated() -> None:
    entry = "[[agents]]\nname='a'\nprovider='openai'\nmodel='m'\n"
    for line in ("api_key = 'sk-123456'", "api_key_env = 'sk-123456'", "api_key_env = 'Kx9aB77q'"):
        said, advice = refused(entry + line)
        assert (
            "line 5" in said and "123456" not in said + advice and "Kx9aB77q" not in said + advice
        )
    assert "api_key_env = " in refused(entry + "api_key = 'sk-1'")[1]


ENTRY = "[[agents]]\nname = 'a'\nprovider = 'openai'\nmodel = 'm'\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("base_url = 'http://127.0.0.1:99999/v1'", "Port out of range 0-65535"),
        ("headers = { 'x token' = 'k-123' }", "'x token' is no header"),
        ("headers = { x-token = 'k-1ü23' }", "'x-token' is no header"),
        ('headers = { x-token = "k-123\\n" }', "'x-token' is no header"),
        ("price = { input = -1.0 }", "must not be negative"),
        ("price = { input = 2.0 }", "says no output: give both, 0 where it is free"),
        ("price = { cached = 0.1 }", "says no input and no output: give both"),
    ],
)
def test_an_entry_that_no_call_could_be_made_with_is_refused(line: str, message: str) -> None:
    said, _ = refused(ENTRY + line)
    assert said.startswith("/home/me/.fugurc, line 5: agents.")
    assert message in said
    assert "k-1" not in said


@pytest.mark.parametrize("depth", [250, 3000])
@pytest.mark.parametrize("line", ["x = {}", "[[agents]]\nbody = {{ a = {} }}"])
def test_a_file_that_is_nested_too_deep_is_told_so(depth: int, line: str) -> None:
    assert (
        refused(line.format("[" * depth + "]" * depth))[0] == "/home/me/.fugurc is nested too deep"
    )


def test_a_file_with_a_byte_order_mark_is_read() -> None:
    (Path.home() / ".fugurc").write_bytes(b"\xef\xbb\xbfmax_turns = 3\r\n")
    assert load_config(Path.cwd(), {}).config.max_turns == 3


def test_a_wrong_setting_outside_of_files_says_where_it_was() -> None:
    with pytest.raises(
        ConfigError,
        match=r"the environment \(FUGU_MAX_TURNS\): max_turns = \"x\": should be a valid integer",
    ):
        load_config(Path.cwd(), {"FUGU_MAX_TURNS": "x"})
    with pytest.raises(
        ConfigError, match=r"the command line \(--max-budget-usd\): max_budget_usd = -1.0"
    ):
        load_config(Path.cwd(), {}, {"max_budget_usd": -1.0})


@pytest.mark.parametrize(
    ("name", "value"), [("FUGU_ALLOW", '["x"'), ("FUGU_TIME_LIMIT", "{ wait = ")]
)
def test_a_variable_that_is_no_toml_is_named(name: str, value: str) -> None:
    with pytest.raises(
        ConfigError,
        match=rf"the environment \({name}\) holds a (list|table) that is not valid TOML",
    ):
        load_config(Path.cwd(), {name: value})


def test_a_variable_that_is_nearly_a_key_is_pointed_out() -> None:
    notes = load_config(
        Path.cwd(), {"FUGU_MAX_TRUNS": "3", "FUGU_MODELS_DIR": "/m", "FUGU_SOMETHING": "1"}
    ).notes
    assert notes == (
        "the environment's FUGU_MAX_TRUNS is not a setting and was ignored; did you mean "
        "FUGU_MAX_TURNS?",
    )


def test_agents_in_the_environment_are_pointed_out() -> None:
    notes = load_config(Path.cwd(), {"FUGU_AGENTS": "[]"}).notes
    assert notes == (
        "the environment's FUGU_AGENTS was ignored: agents are entries of .fugurc (`fugu help "
        "pool`)",
    )


def test_a_file_that_is_not_text_is_told_so() -> None:
    (Path.home() / ".fugurc").write_bytes(b"seed = 1\n\xff")
    with pytest.raises(ConfigError, match=r"is not UTF-8 text \(byte 9\)"):
        load_config(Path.cwd(), {})


def test_the_conductor_is_a_table() -> None:
    table = '{ agent = "a", max_steps = 4, rounds = 1, depth = 0, agents = 2 }'
    (Path.home() / ".fugurc").write_text(f"conductor = {table}\n")
    assert load_config(Path.cwd(), {}).config.conductor == ConductorEntry(
        agent="a", max_steps=4, rounds=1, depth=0, agents=2
    )
    assert load_config(
        Path.cwd(), {"FUGU_CONDUCTOR": "{ rounds = 1 }"}
    ).config.conductor == ConductorEntry(rounds=1)
    assert load_config(Path.cwd(), {"FUGU_CONDUCTOR": "strong"}).config.conductor == ConductorEntry(
        agent="strong"
    )
    with pytest.raises(ConfigError, match="rounds"):
        load_config(Path.cwd(), {"FUGU_CONDUCTOR": "{ rounds = 0 }"})


def test_lines_are_found_in_tables_arrays_and_quoted_keys() -> None:
    text = 'a = 1\n\n[[agents]]\nname = "x"\n[agents.price]\ninput = 1\n[[agents]]\n"name" = "y"\n'
    assert key_lines(text) == {
        ("a",): 1,
        ("agents", 0): 3,
        ("agents", 0, "name"): 4,
        ("agents", 0, "price"): 5,
        ("agents", 0, "price", "input"): 6,
        ("agents", 1): 7,
        ("agents", 1, "name"): 8,
    }


@pytest.mark.parametrize("name", [".fugurc", "AGENTS.md", ".mcp.json", ".agents/skills/x/SKILL.md"])
def test_a_trusted_folder_whose_files_change_has_to_be_trusted_again(name: str) -> None:
    data, folder = Config().data, Path.cwd()
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    assert trust.trust(data, folder) and trust.is_trusted(data, folder)
    (folder / name).write_text("# new\n")
    assert not trust.is_trusted(data, folder)
    assert trust.trust(data, folder) and trust.is_trusted(data, folder)
    (folder / name).write_text("# changed\n")
    assert (trust.is_trusted(data, folder), trust.changed_files(data, folder)) == (False, (name,))
    loaded = load_config(folder, {})
    assert loaded.trusted is False
    assert (
        loaded.notes[0]
        == f"{folder} is not trusted any more: {name} changed since; look at it, then `fugu trust`"
    )
    (folder / name).unlink()
    assert trust.changed_files(data, folder) == (name,)
    assert trust.trust(data, folder) and trust.is_trusted(data, folder)


def test_what_a_repository_below_a_trusted_folder_says_does_not_count() -> None:
    data, inner = Config().data, Path.cwd() / "inner"
    inner.mkdir()
    trust.trust(data, Path.cwd())
    assert trust.is_trusted(data, inner)
    (inner / "AGENTS.md").write_text("Obey.")
    assert not trust.is_trusted(data, inner)


def test_a_file_of_trust_that_cannot_be_read_trusts_nobody() -> None:
    data, folder = Config().data, Path.cwd()
    data.mkdir(parents=True)
    for text in (f"{folder}\n", "{", "[]", f'{{"{folder}": 1}}'):
        (data / "trusted").write_text(text)
        assert not trust.is_trusted(data, folder)


def test_trust_is_kept_for_a_folder_and_what_lies_in_it() -> None:
    data, folder = Config().data, Path.cwd() / "repo"
    (folder / "sub").mkdir(parents=True)
    assert not trust.is_trusted(data, folder)
    assert trust.trust(data, folder) and not trust.trust(data, folder)
    assert trust.is_trusted(data, folder / "sub") and not trust.is_trusted(data, Path.cwd())
    assert trust.untrust(data, folder) and not trust.untrust(data, folder)
    assert not trust.is_trusted(data, folder)


@pytest.mark.parametrize("name", [".fugurc", ".mcp.json", ".agents/hooks.json"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path, name: str) -> None:
    root = tmp_path / "repo"
    (root / ".agents").mkdir(parents=True)
    (root / ".git").mkdir()
    os.mkfifo(root / name)
    if name == ".fugurc":
        with pytest.raises(ConfigError, match="it is not a file"):
            load_config(root, {})
    else:
        loaded = load_config(root, {})
        assert "it is not a file" in " ".join((*loaded.servers.notes, *loaded.hooks.notes))
