"""What a scope covers, on a real disk with real links, and patterns that would like to explode."""

from __future__ import annotations

import fnmatch
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.kernel.policy import (
    MAX_PATH,
    MAX_PATTERN,
    Scope,
    check_env_pattern,
    check_host_pattern,
    check_path_pattern,
    locate,
    match_env,
    match_host,
    match_path,
)
from forestay.kernel.problems import Problem


@pytest.mark.parametrize(
    ("pattern", "path", "covered"),
    [
        ("src/**", "src/a/b.ts", True),
        ("src/**", "src", True),
        ("src/**", "srcs/a", False),
        ("src/*", "src/a", True),
        ("src/*", "src/a/b", False),
        ("**/*.ts", "a/b/c.ts", True),
        ("**/*.ts", "c.ts", True),
        ("*.ts", "a/c.ts", False),
        ("a/**/z", "a/z", True),
        ("a/**/b/**/z", "a/b/c/b/y/z", True),
        ("a/**/b/**/z", "a/c/z", False),
        ("?.txt", "a.txt", True),
        ("?.txt", "ab.txt", False),
        ("[id].ts", "[id].ts", True),
        ("**", ".", True),
        (".", ".", True),
        (".", "a", False),
        ("src/**", "/etc/passwd", False),
        ("**", "/etc/passwd", False),
        ("/data/**", "/data/x", True),
        ("/data/**", "data/x", False),
    ],
)
def test_path_globs(pattern: str, path: str, covered: bool) -> None:
    assert match_path(check_path_pattern(pattern), path) is covered


_words = st.text("ab*?", min_size=1, max_size=6)


@given(_words, st.text("ab", min_size=1, max_size=8))
def test_one_segment_matches_as_fnmatch_does(pattern: str, text: str) -> None:
    if "**" not in pattern:
        assert match_path(pattern, text) == fnmatch.fnmatchcase(text, pattern)


@given(
    st.lists(st.sampled_from(["a", "b", "*", "**"]), min_size=1, max_size=6),
    st.lists(st.sampled_from("ab"), min_size=1, max_size=6),
)
def test_many_segments_match_as_the_obvious_recursion_does(pattern: list[str], path: list[str]) -> None:
    def obvious(wanted: list[str], parts: list[str]) -> bool:
        if not wanted:
            return not parts
        if wanted[0] == "**":
            return obvious(wanted[1:], parts) or (bool(parts) and obvious(wanted, parts[1:]))
        return bool(parts) and wanted[0] in ("*", parts[0]) and obvious(wanted[1:], parts[1:])

    assert match_path("/".join(pattern), "/".join(path)) == obvious(pattern, path)


def test_a_pattern_that_would_explode_does_not() -> None:
    assert not match_path("a*" * 16 + "b", "a" * 4000)
    assert not match_path("/".join(["**", "a"] * 12) + "/b", "/".join(["a"] * 500))
    with pytest.raises(Problem) as caught:
        check_path_pattern("*a" * 40)
    assert caught.value.key == "pattern_invalid"


@pytest.mark.parametrize("pattern", ["", "../x", "a/../../b", "x" * 2000, "a\0b"])
def test_malformed_path_patterns(pattern: str) -> None:
    with pytest.raises(Problem) as caught:
        check_path_pattern(pattern)
    assert caught.value.key == "pattern_invalid"


def test_a_path_is_located_after_dots_and_links(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "src").mkdir(parents=True)
    outside.mkdir()
    (root / "leave").symlink_to(outside)
    (root / "stay").symlink_to(root / "src")
    (root / "loop").symlink_to(root / "loop")
    assert locate(root, "src/../src/a.ts") == "src/a.ts"
    assert locate(root, ".") == "."
    assert locate(root, "stay/a.ts") == "src/a.ts"
    assert locate(root, "leave/secret") == str(outside.resolve() / "secret")
    assert locate(root, "../outside/secret") == str(outside.resolve() / "secret")
    assert locate(root, "/etc/hosts").startswith("/")
    assert not Scope.of("read", ("**",)).covers(locate(root, "leave/secret"))
    assert Scope.of("read", ("src/**",)).covers(locate(root, "stay/a.ts"))
    assert locate(root, "loop/x")
    with pytest.raises(Problem):
        locate(root, "a\0b")


def test_a_sibling_folder_with_the_same_beginning_is_outside(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root-two").mkdir()
    assert locate(tmp_path / "root", "../root-two/x").startswith("/")


@pytest.mark.parametrize(
    ("pattern", "host", "covered"),
    [
        ("api.github.com", "API.GitHub.com.", True),
        ("*.github.com", "api.github.com", True),
        ("*.github.com", "github.com", False),
        ("*.github.com", "evilgithub.com", False),
        ("github.com", "github.com.evil.example", False),
        ("127.0.0.1", "127.0.0.1:8080", True),
        ("127.0.0.1:80", "127.0.0.1:8080", False),
        ("::1", "[::1]:80", True),
        ("0:0:0:0:0:0:0:1", "::1", True),
        ("bücher.example", "xn--bcher-kva.example", True),
    ],
)
def test_hosts(pattern: str, host: str, covered: bool) -> None:
    assert match_host(check_host_pattern(pattern), host) is covered


@pytest.mark.parametrize("pattern", ["", "*", "*.", "a.*.b", "http://x", "x/y", "a b", "u@h"])
def test_malformed_hosts(pattern: str) -> None:
    with pytest.raises(Problem):
        check_host_pattern(pattern)


def test_environment_names() -> None:
    assert match_env(check_env_pattern("HOME"), "HOME")
    assert not match_env("HOME", "HOMEPATH")
    assert match_env(check_env_pattern("npm_*"), "npm_config")
    for pattern in ("", "A*B", "A=B"):
        with pytest.raises(Problem):
            check_env_pattern(pattern)


def test_an_unknown_resource_is_inside_no_limited_scope() -> None:
    assert Scope().covers(None)
    assert not Scope.of("read", ("src/**",)).covers(None)
    with pytest.raises(Problem):
        Scope.of("exec", ("rm",))


@pytest.mark.parametrize(
    ("capability", "pattern", "inside", "outside"),
    [
        ("read", "src/**", "src/a.ts", "etc/a.ts"),
        ("write", "out/*", "out/a", "out/a/b"),
        ("http", "*.example.com", "api.example.com:443", "example.org"),
        ("env", "GITHUB_*", "GITHUB_TOKEN", "HOME"),
    ],
)
def test_each_capability_is_limited_by_patterns_of_its_own(
    capability: str, pattern: str, inside: str, outside: str
) -> None:
    scope = Scope.of(capability, ("never", pattern))
    assert scope.covers(inside)
    assert not scope.covers(outside)
    assert not scope.covers(None)
    assert Scope().covers(None)


@pytest.mark.parametrize(
    ("pattern", "normal"),
    [("./src//./a", "src/a"), ("a/**/**/b", "a/**/b"), ("**/**", "**"), ("/a/", "/a"), ("/", "/"), ("./", ".")],
)
def test_a_path_pattern_has_one_normal_form(pattern: str, normal: str) -> None:
    assert check_path_pattern(pattern) == normal


def test_limits_are_what_they_say(tmp_path: Path) -> None:
    assert check_path_pattern("a" * MAX_PATTERN)
    assert check_path_pattern("*a" * 32)
    assert locate(tmp_path, "a/" * (MAX_PATH // 2)).startswith("a/")
    for bad in ("a" * (MAX_PATTERN + 1), "*a" * 33, "?a" * 33, ""):
        with pytest.raises(Problem):
            check_path_pattern(bad)
    with pytest.raises(Problem):
        locate(tmp_path, "a" * (MAX_PATH + 1))


def test_the_whole_disk_can_be_the_root() -> None:
    assert locate(Path("/"), "etc") == "etc"
    assert locate(Path("/"), "/") == "."


@pytest.mark.parametrize(
    ("pattern", "host", "covered"),
    [
        ("*.example.com", "a.example.com", True),
        ("*.example.com", ".example.com", False),
        ("*.example.com", "example.com", False),
        ("[::1]:8080", "[::1]:8080", True),
        ("[::1]:8080", "[::1]:9090", False),
        ("[::1]:8080", "[::1]", False),
        ("[::1]", "[0:0::1]:9090", True),
    ],
)
def test_hosts_below_a_name_and_ports_of_an_address(pattern: str, host: str, covered: bool) -> None:
    assert match_host(check_host_pattern(pattern), host) is covered


def test_names_have_a_longest_length() -> None:
    assert check_host_pattern("a" * 255) and check_env_pattern("A" * 255)
    for check in (check_host_pattern, check_env_pattern):
        with pytest.raises(Problem):
            check("a" * 256)
