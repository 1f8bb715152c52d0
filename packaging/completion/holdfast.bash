# Completion of the command `holdfast` for bash: commands, options, and values
# of options. In zsh: autoload -U bashcompinit && bashcompinit, and source it.
#
# It reads `holdfast help` and `holdfast help COMMAND`. The synopsis comes
# first, up to an empty line. Then each option or command has a line with two
# blanks in front, and each option of one of these has four.

# Sets options[OPTION] to the name of its value, or nothing, from a help text.
_holdfast_options()
{
    local line rest='' head=1
    local -r pattern='(^|[][ |,(])(--?[A-Za-z][a-z-]*)( ([A-Za-z][^] ,]*))?'

    options=()
    while IFS= read -r line; do
        [[ -n $line ]] || head=
        if [[ -n $head ]]; then
            rest+=" $line"
        elif [[ $line == '  -'* || $line == '    -'* ]]; then
            line=${line#"${line%%-*}"}
            rest+=" ${line%%  *}"
        fi
    done <<<"$1"
    while [[ $rest =~ $pattern ]]; do
        # The list has all of the synopsis, or more.
        [[ -n ${options[${BASH_REMATCH[2]}]-} ]] ||
            options[${BASH_REMATCH[2]}]=${BASH_REMATCH[4]}
        rest=${rest#*"${BASH_REMATCH[0]}"}
    done
}

# Prints the commands, by the text of `holdfast help`.
_holdfast_commands()
{
    local line

    while IFS= read -r line; do
        [[ $line =~ ^\ \ ([a-z]+)($|\ ) ]] && printf '%s ' "${BASH_REMATCH[1]}"
    done <<<"$1"
}

# Completes the word $1 of a synopsis, which begins with $2.
_holdfast_value()
{
    case $1 in
    FILE)
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$2")
        ;;
    FORMAT)
        mapfile -t COMPREPLY < <(compgen -W 'json tabs columns' -- "$2")
        ;;
    [a-z]*\|*)
        mapfile -t COMPREPLY < <(compgen -W "${1//|/ }" -- "$2")
        ;;
    esac
}

# Takes words from `at` on, up to one that is no option, or the last one, which
# is being written. Sets `taken` to the name of the value expected there, or
# nothing.
_holdfast_skip()
{
    taken=
    while ((at < last)) && [[ ${words[at]} == -?* && ${words[at]} != -- ]]; do
        taken=${options[${words[at]}]-}
        ((at += 1))
        [[ -n $taken ]] || continue
        ((at < last)) || return
        ((at += 1))
        taken=
    done
}

# A program with its own arguments follows --.
_holdfast_program()
{
    if ((at == last)); then
        mapfile -t COMPREPLY < <(compgen -c -- "$current")
    else
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
    fi
}

_holdfast()
{
    local program=${1/#\~/$HOME} help current command taken
    local -i at=1 last
    local -a words
    local -A options

    COMPREPLY=()
    # COMP_WORDS are broken at colons, as of an address.
    read -ra words <<<"${COMP_LINE:0:COMP_POINT}"
    [[ ${COMP_LINE:0:COMP_POINT} != *[[:space:]] ]] || words+=('')
    ((last = ${#words[@]} - 1))
    current=${words[last]}
    help=$("$program" help 2>/dev/null)
    _holdfast_options "$help"
    _holdfast_skip
    if ((at < last)); then
        command=${words[at]}
        ((at += 1))
        if [[ $command != help ]]; then
            help=$("$program" help "$command" 2>/dev/null)
            _holdfast_options "$help"
            options[-h]=
        else
            options=()
        fi
        while _holdfast_skip; ((at < last)); do
            ((at += 1))
            [[ ${words[at - 1]} != -- ]] || { _holdfast_program; return; }
        done
    fi
    if [[ -n $taken ]]; then
        _holdfast_value "$taken" "$current"
    elif [[ $current == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "${!options[*]}" -- "$current")
    elif [[ -z ${command-} || $command == help ]]; then
        mapfile -t COMPREPLY < <(
            compgen -W "$(_holdfast_commands "$help")" -- "$current")
    fi
}

complete -F _holdfast holdfast
