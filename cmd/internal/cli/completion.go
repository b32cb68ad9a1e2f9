package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Shells can complete command lines by a script of WriteCompletion.
var Shells = []string{"bash", "zsh", "fish"}

// The values of flags that completion distinguishes.
const (
	kindNone   = ""  // the flag has none
	kindOther  = "-" // nothing that can be completed
	kindFile   = "file"
	kindFolder = "folder"
)

// kind returns one of these, or words with spaces between them.
func (d described) kind() string {
	switch {
	case d.choices != nil:
		return strings.Join(d.choices, " ")
	case d.value == kindFile, d.value == kindFolder, d.value == kindNone:
		return d.value
	}
	return kindOther
}

// WriteCompletion writes a script that completes command lines of the program in one of Shells.
func (a *App) WriteCompletion(w io.Writer, shell string) error {
	write, ok := map[string]func(*App, *strings.Builder){"bash": (*App).bash, "zsh": (*App).zsh, "fish": (*App).fish}[shell]
	if !ok {
		return usagef("no shell %q: want %s", shell, strings.Join(Shells, ", "))
	}
	var b strings.Builder
	write(a, &b)
	_, err := io.WriteString(w, b.String())
	return err
}

// flags returns the flags of a command, described.
func (c *Command) flags() (all []described) {
	if c.Flags != nil {
		c.Flags().each(func(d described) { all = append(all, d) })
	}
	return append(all, described{name: "h", short: "list the flags"}, described{name: "help", short: "say all about the command"})
}

// bash compares words itself, without the package bash-completion, which is not everywhere.
func (a *App) bash(b *strings.Builder) {
	kinds := make(map[string][]string) // flags by their values, as patterns
	var flags, operands strings.Builder
	for _, c := range a.Commands {
		var names []string
		for _, d := range c.flags() {
			names = append(names, "-"+d.name)
			if kind := d.kind(); kind != kindNone {
				kinds[kind] = append(kinds[kind], "'"+c.Name+" "+d.name+"'")
			}
		}
		fmt.Fprintf(&flags, "\t%s) words=' %s' ;;\n", c.Name, strings.Join(names, " "))
		switch {
		case c.Operands.Program:
			fmt.Fprintf(&operands, "\t%s) _sluice_program \"$at\" ;;\n", c.Name)
		case c.Operands.Words != nil:
			fmt.Fprintf(&operands, "\t%s) COMPREPLY=($(compgen -W '%s' -- \"$cur\")) ;;\n", c.Name, strings.Join(c.Operands.Words, " "))
		}
	}
	var values strings.Builder
	for _, kind := range sorted(kinds) {
		fmt.Fprintf(&values, "\t%s) kind='%s' ;;\n", strings.Join(kinds[kind], " | "), kind)
	}
	fmt.Fprintf(b, `# bash completion for sluice, made by "sluice completion bash"

# _sluice_kind sets kind to what the value of a flag is, and to nothing if it has none.
_sluice_kind() {
	kind=
	case "$1 $2" in
%s	esac
}

# _sluice_program completes the program that begins at a word, and its arguments.
_sluice_program() {
	if (($1 == COMP_CWORD)); then
		COMPREPLY=($(compgen -c -- "$cur"))
	elif declare -F _command_offset >/dev/null; then
		_command_offset "$1"
	else
		COMPREPLY=($(compgen -f -- "$cur"))
		compopt -o filenames 2>/dev/null
	fi
}

_sluice() {
	local cur=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} at=2 name kind= words=
	COMPREPLY=()
	if ((COMP_CWORD == 1)); then
		COMPREPLY=($(compgen -W '%s' -- "$cur"))
		return
	fi
	# Go to the first word that is neither a flag nor the value of one. bash makes three words of
	# -flag=value.
	while ((at < COMP_CWORD)); do
		name=${COMP_WORDS[at]}
		case $name in
		--) at=$((at + 1)) && break ;;
		-?*) ;;
		*) break ;;
		esac
		name=${name#-}
		_sluice_kind "$command" "${name#-}"
		at=$((at + 1))
		if ((at <= COMP_CWORD)) && [[ ${COMP_WORDS[at]} = = ]]; then
			at=$((at + 1))
			[[ -n $kind ]] || kind=-
			[[ $cur != = ]] || cur=
		fi
		if [[ -n $kind ]]; then
			((at < COMP_CWORD)) || break
			at=$((at + 1))
		fi
		kind=
	done
	case $kind in
	'') ;;
	-) return ;;
	file)
		COMPREPLY=($(compgen -f -- "$cur"))
		compopt -o filenames 2>/dev/null
		return
		;;
	folder)
		COMPREPLY=($(compgen -d -- "$cur"))
		compopt -o filenames 2>/dev/null
		return
		;;
	*)
		COMPREPLY=($(compgen -W "$kind" -- "$cur"))
		return
		;;
	esac
	if [[ $cur = -* && ${COMP_WORDS[at - 1]} != -- ]] && ((at == COMP_CWORD)); then
		case $command in
%s		esac
		[[ $cur != --* ]] || words=${words// -/ --}
		COMPREPLY=($(compgen -W "$words" -- "$cur"))
		return
	fi
	case $command in
%s	esac
}

complete -F _sluice sluice
`, values.String(), strings.Join(a.names(), " "), indent(flags.String()), operands.String())
}

// zsh has functions that know the flags of Go: -flag value and -flag=value.
func (a *App) zsh(b *strings.Builder) {
	b.WriteString("#compdef sluice\n# zsh completion for sluice, made by \"sluice completion zsh\"\n\n_sluice() {\n\tlocal curcontext=$curcontext state line\n\tlocal -a sluice_commands\n\tsluice_commands=(\n")
	for _, c := range a.Commands {
		fmt.Fprintf(b, "\t\t%s\n", single(c.Name+":"+strings.ReplaceAll(c.Short, ":", `\:`)))
	}
	b.WriteString("\t)\n\t_arguments -C '1: :->command' '*:: :->rest' && return\n\tcase $state in\n\tcommand) _describe -t commands command sluice_commands ;;\n\trest)\n\t\tcase $line[1] in\n")
	plain := strings.NewReplacer(`\`, `\\`, "[", `\[`, "]", `\]`, ":", `\:`)
	for _, c := range a.Commands {
		fmt.Fprintf(b, "\t\t%s)\n\t\t\t_arguments -S", c.Name)
		for _, d := range c.flags() {
			spec := "*-" + d.name
			kind := d.kind()
			if kind != kindNone {
				spec += "="
			}
			spec += "[" + plain.Replace(d.short) + "]"
			switch kind {
			case kindNone:
			case kindOther:
				spec += ":" + plain.Replace(d.value) + ": "
			case kindFile:
				spec += ":file:_files"
			case kindFolder:
				spec += ":folder:_files -/"
			default:
				spec += ":" + plain.Replace(d.value) + ":(" + kind + ")"
			}
			fmt.Fprintf(b, " \\\n\t\t\t\t%s", single(spec))
		}
		switch {
		case c.Operands.Program:
			b.WriteString(" \\\n\t\t\t\t'(-)1: :_command_names -e' '*:: :_normal'")
		case c.Operands.Words != nil:
			fmt.Fprintf(b, " \\\n\t\t\t\t'1: :(%s)'", strings.Join(c.Operands.Words, " "))
		}
		b.WriteString("\n\t\t\t;;\n")
	}
	b.WriteString("\t\tesac\n\t\t;;\n\tesac\n}\n\nif [ \"$funcstack[1]\" = _sluice ]; then\n\t_sluice \"$@\"\nelse\n\tcompdef _sluice sluice\nfi\n")
}

func (a *App) fish(b *strings.Builder) {
	b.WriteString("# fish completion for sluice, made by \"sluice completion fish\"\n\ncomplete -c sluice -f\n")
	for _, c := range a.Commands {
		fmt.Fprintf(b, "complete -c sluice -n __fish_use_subcommand -a %s -d %s\n", c.Name, single(c.Short))
	}
	for _, c := range a.Commands {
		begin := "complete -c sluice -n '__fish_seen_subcommand_from " + c.Name + "'"
		for _, d := range c.flags() {
			arg := ""
			switch kind := d.kind(); kind {
			case kindNone:
			case kindOther:
				arg = " -x"
			case kindFile:
				arg = " -r -F"
			case kindFolder:
				arg = " -x -a '(__fish_complete_directories)'"
			default:
				arg = " -x -a " + single(kind)
			}
			fmt.Fprintf(b, "%s -o %s%s -d %s\n", begin, d.name, arg, single(d.short))
		}
		switch {
		case c.Operands.Program:
			fmt.Fprintf(b, "%s -F -a '(__fish_complete_command)'\n", begin)
		case c.Operands.Words != nil:
			fmt.Fprintf(b, "%s -a %s\n", begin, single(strings.Join(c.Operands.Words, " ")))
		}
	}
}

// single quotes an argument for all of Shells; it must not end with a backslash, which fish would
// read.
func single(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

func indent(lines string) string {
	return "\t" + strings.TrimSuffix(strings.ReplaceAll(lines, "\n", "\n\t"), "\t")
}

func sorted(m map[string][]string) (keys []string) {
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
