"""Shell completion: a script for the user's shell, made from the parser, so it knows every command and option.

The script is complete in itself: a press of TAB starts no Python, which would take a second.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from tidegate.cli.arguments import Commands, command

SHELLS = ("bash", "zsh", "fish")


def add(commands: Commands) -> None:
    """Add the command."""
    parser = command(
        commands,
        "completion",
        "print a shell completion script",
        "source <(tidegate completion bash)          # in ~/.bashrc; the same with zsh in ~/.zshrc\n"
        "  tidegate completion fish > ~/.config/fish/completions/tidegate.fish",
    )
    parser.add_argument("shell", choices=SHELLS, help="which shell")
    parser.set_defaults(action=_completion)


def _completion(arguments: argparse.Namespace) -> None:
    from tidegate.cli import _parser

    print(script(_parser(), arguments.shell), end="")


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script for ``bash``, ``zsh`` or ``fish``; it completes commands, options, their choices, and file names.

    >>> parser = argparse.ArgumentParser(prog="tool")
    >>> run = parser.add_subparsers().add_parser("run", help="go")
    >>> _ = run.add_argument("--how", choices=["fast", "well"])
    >>> "'run --how') words='fast well'" in script(parser, "bash")
    True
    """
    if shell == "fish":
        return "\n".join(_fish(parser)) + "\n"
    lines = _bash(parser)
    if shell == "zsh":
        lines = ["autoload -U +X bashcompinit && bashcompinit", *lines]
    return "\n".join(lines) + "\n"


def _commands(parser: argparse.ArgumentParser) -> list[tuple[str, str, argparse.ArgumentParser]]:
    """(name, what it does, its parser)."""
    (found,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    summaries = {choice.dest: choice.help or "" for choice in found._choices_actions}
    return [(name, summaries.get(name, ""), own) for name, own in found.choices.items()]


def _options(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    return (action for action in parser._actions if action.option_strings)


def _choices(action: argparse.Action) -> str:
    return " ".join(str(choice) for choice in action.choices or ())


def _bash(parser: argparse.ArgumentParser) -> list[str]:
    of_values, of_commands = [], []
    for name, _, own in _commands(parser):
        for action in own._actions:
            if action.choices and action.option_strings:
                for option in action.option_strings:
                    of_values.append(f"    '{name} {option}') words='{_choices(action)}' ;;")
        words = [option for action in _options(own) for option in action.option_strings]
        words += [_choices(action) for action in own._actions if not action.option_strings and action.choices]
        of_commands.append(f"      {name}) words='{' '.join(words)}' ;;")
    prog, names = parser.prog, " ".join(name for name, _, _ in _commands(parser))
    return [
        f"_{prog}() {{",
        '  local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words=""',
        f"  if [ \"$COMP_CWORD\" -eq 1 ]; then words='{names} --help'; else",
        '    case "${COMP_WORDS[1]} $before" in',
        *of_values,
        '    *) case "${COMP_WORDS[1]}" in',
        *of_commands,
        "    esac ;;",
        "    esac",
        "  fi",
        # What no word fits is a file's name.
        '  COMPREPLY=($(compgen -W "$words" -- "$current"))',
        "}",
        f"complete -o default -F _{prog} {prog}",
    ]


def _fish(parser: argparse.ArgumentParser) -> list[str]:
    prog, lines = parser.prog, []
    for name, summary, own in _commands(parser):
        lines.append(f"complete -c {prog} -n __fish_use_subcommand -a {name} -d '{_quoted(summary)}'")
        here = f"complete -c {prog} -n '__fish_seen_subcommand_from {name}'"
        for action in own._actions:
            choices = f" -x -a '{_choices(action)}'" if action.choices else " -r" if action.nargs != 0 else ""
            if action.option_strings:
                option = action.option_strings[-1].removeprefix("--")
                lines.append(f"{here} -l {option}{choices} -d '{_quoted(action.help or '')}'")
            elif action.choices:
                lines.append(f"{here}{choices}")
    return lines


def _quoted(text: str) -> str:
    return text.replace("%%", "%").replace("\\", "\\\\").replace("'", "\\'")
