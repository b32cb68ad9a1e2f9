# What .ci/run and .ci/full have in common. Each of them sets most, the seconds that
# all of it may take, and parts, a list of name:seconds; defines part_name for
# each; and calls ci_main.
#
# Each part has a budget in seconds, and what those before it have left over. It
# is ended when it exceeds both. The budgets add up to less than most, so the whole
# stays below that whatever is added later. A part that outgrows its budget must
# become faster or take from another.

set -euo pipefail
export LC_ALL=C

# Versions of tools, and the program that tags releases. It is not in go.work, whose versions these would change.
readonly tools=tools

# It is not in go.work either, so that "go test work" does not compile its dependencies, all these
# rate limiters: a part of .ci/full has it.
readonly zoo=bench/zoo

# Nor are recipes with the largest libraries in go.work. They have a part of .ci/full, too.
readonly platforms=docs/recipes/platforms

# Modules with large dependencies of their own, which take minutes to compile in each way.
# .ci/run tests them once, in the part work; .ci/full does the rest.
readonly large=(cmd docs/recipes sluicehttp/sdktest)

# Modules that need no more than the core does: they are checked on all its systems.
readonly light=(. batch observe/live)

# What tools/release tags; its test compares the two lists.
readonly released=(. batch cmd observe/live observe/otel observe/prometheus sluicegrpc sluiceredis sluiceredis/rueidisclient)

# What only a real server can show must not be skipped without a word. Where there is no redis-server, say "none".
export SLUICE_REDIS=${SLUICE_REDIS-required}

script=$(cd "$(dirname "$0")" && pwd -P)/$(basename "$0")
root=$(dirname "$(dirname "$script")")
cd "$root"
export GOWORK=$root/go.work

# ---- The parts that both have. Each part runs in a shell of its own, with $tmp for
# ---- its files and $budget for the seconds that it may take; SECONDS counts from its
# ---- start.

part_setup() {
	at . go version
	have_c_compiler || install_c_compiler
	[[ $SLUICE_REDIS != required ]] || command -v redis-server >/dev/null || install_redis
	local module
	for module in $modules; do
		again alone "$module" go mod download
	done
}

part_clean() {
	if [[ -s $tmp/changes ]]; then
		echo "the run began with changes: nothing to compare"
		return
	fi
	local changes
	changes=$(git status --porcelain)
	[[ -z $changes ]] || fail "the run changed files:"$'\n'"$changes"
}

# ---- What the parts are made of.

fail() {
	echo ".ci/$(basename "$script"): $*" >&2
	exit 1
}

# at runs a command in a folder, and prints it as one could type it.
at() {
	local dir=$1
	shift
	printf '+ (cd %s && %s)\n' "$dir" "$*" | sed "s|$tmp/||g; s|(cd \\. && \\(.*\\))|\\1|" >&2
	(cd "$dir" && "$@")
}

# alone runs a command in a module as its users see it, without the workspace.
alone() {
	local dir=$1
	shift
	at "$dir" env GOWORK=off "$@"
}

# again gives a command that needs the network three attempts.
again() {
	"$@" || { sleep 5 && "$@"; } || { sleep 15 && "$@"; }
}

# files prints the files of a pattern that are in git or, by hand, could be.
files() {
	local file
	git ls-files --cached --others --exclude-standard --deduplicate -- "$@" |
		while read -r file; do
			if [[ -e $file ]]; then echo "$file"; fi
		done
}

# find_modules prints the folder of each module.
find_modules() {
	files ':(glob)**/go.mod' | sed 's|^go.mod$|./go.mod|; s|/go.mod$||' | sort
}

# small_members prints the folders of all modules but the large ones.
small_members() {
	local module
	for module in $members; do
		[[ " ${large[*]} " = *" $module "* ]] || echo "$module"
	done
}

# test_members tests the packages of all modules but the large ones.
test_members() {
	local packages
	mapfile -t packages < <(small_members | sed 's|.*|./&/...|')
	at . go test "$@" "${packages[@]}"
}

# test_libraries tests the packages of the modules that others import. Those of sluiceredis wait for
# real servers most of the time: they come first, so that others are tested meanwhile.
test_libraries() {
	local packages
	mapfile -t packages < <(small_members | grep -vE '^(bench|examples|internal/.*)$' | sort -r | sed 's|.*|./&/...|')
	at . go test "$@" "${packages[@]}"
}

# check_members runs staticcheck on the packages of modules.
check_members() {
	alone $tools go build -o "$tmp/staticcheck" honnef.co/go/tools/cmd/staticcheck
	local module
	for module in "$@"; do
		alone "$module" "$tmp/staticcheck" ./...
	done
}

have_c_compiler() {
	echo '#include <stdlib.h>
	int main(void) { return 0; }' | $(go env CC) -x c -o "$tmp/a.out" - 2>"$tmp/cc.log"
}

# debian installs packages, if this is a Debian of which we are root. It waits for others that install some.
# The daemons that packages would start are told not to.
debian() {
	[[ $(id -u) = 0 ]] && command -v apt-get >/dev/null &&
		again at . apt-get update -q &&
		RUNLEVEL=1 again at . apt-get -o DPkg::Lock::Timeout=120 install -q -y --no-install-recommends "$@"
}

install_c_compiler() {
	debian gcc libc6-dev || fail "go test -race needs a C compiler: install gcc and the headers of libc"
	have_c_compiler || fail "still no C compiler: $(cat "$tmp/cc.log")"
}

# install_redis installs redis-server. The tests start their own.
install_redis() {
	debian redis-server || fail "the tests of sluiceredis need a redis-server: install one"
	command -v redis-server >/dev/null || fail "still no redis-server"
}

# fuzz_binaries builds every package that has fuzz targets, and no other, and
# prints folder, binary and name of each target, but for folders that match $1. Those of modules with further
# dependencies, which would all be compiled anew to guide the fuzzing, go without.
fuzz_binaries() {
	local dir binary name module guide
	files '*_test.go' | xargs grep -l '^func Fuzz' | xargs -n 1 dirname | sort -u | sed -E "\#$1#d" >"$tmp/folders"
	while read -r dir; do
		binary=$tmp/$(echo "$dir" | tr / -).test
		module=$dir guide=
		while [[ ! -e $module/go.mod ]]; do module=$(dirname "$module"); done
		[[ " ${light[*]} " != *" $module "* ]] || guide=-fuzz=.
		alone "$dir" go test -c $guide -o "$binary" . </dev/null
		for name in $(cd "$dir" && "$binary" -test.list '^Fuzz' | grep '^Fuzz'); do
			echo "./$dir $binary $name"
		done
	done <"$tmp/folders"
}

# These targets read what comes from outside: headers, bodies, snapshots, logs, configurations,
# RetryInfo, replies of a Redis, and requests to the proxy.
readonly hostile=' FuzzParse FuzzStructured FuzzMakers FuzzRestore FuzzSnapshot FuzzOpenLog FuzzConfig FuzzParseRate FuzzRead FuzzReplies FuzzRequest FuzzReadHTML FuzzReadSitemap '

# fuzz_all runs each target for at most so many milliseconds, and less if there is not
# the time; hostile ones for a million inputs or the second number of milliseconds. Those in folders
# that the third parameter matches are left out. Each target starts from the inputs in git, not from
# what was found here before, so that a run means the same on every machine.
fuzz_all() {
	local longest=$1 hostile_longest=${2-$1} without=${3-^none$}
	local targets target left dir binary name share limit
	fuzz_binaries "$without" >"$tmp/targets"
	# The hostile ones first: they have what time there is.
	while read -r dir binary name; do
		[[ $hostile != *" $name "* ]] || echo "$dir $binary $name"
	done <"$tmp/targets" >"$tmp/sorted"
	while read -r dir binary name; do
		[[ $hostile = *" $name "* ]] || echo "$dir $binary $name"
	done <"$tmp/targets" >>"$tmp/sorted"
	mapfile -t targets <"$tmp/sorted"
	left=${#targets[@]}
	((left > 0)) || fail "no fuzz targets"
	for target in "${targets[@]}"; do
		read -r dir binary name <<<"$target"
		# 10 s stay for what is slower than thought, 1.5 s are for starting
		# and stopping a target. What one leaves goes to those after it.
		share=$(((budget - 10 - SECONDS) * 1000 / left - 1500))
		((share >= 500)) || fail "$left of ${#targets[@]} targets are left, and no time: raise the budget"
		limit=$longest
		[[ $hostile != *" $name "* ]] || limit=$hostile_longest
		((share <= limit)) || share=$limit
		fuzz "$dir" "$binary" "$name" "$share"
		left=$((left - 1))
	done
}

# fuzz runs a target for some milliseconds, but no more than a million inputs. An interrupt ends it,
# not a time as -fuzztime, because up to Go 1.26 a target that reaches that can fail
# with nothing but "context deadline exceeded" (golang/go#75804).
fuzz() {
	local dir=$1 binary=$2 name=$3 ms=$4 input
	at "$dir" timeout --foreground --preserve-status --signal=INT "$((ms / 1000)).$(printf %03d $((ms % 1000)))s" \
		"$binary" -test.run '^$' -test.fuzz "^$name\$" -test.fuzztime 1000000x -test.fuzzcachedir "$tmp/fuzz" -test.fuzzminimizetime=1x 2>&1 |
		tee "$tmp/fuzz.log" && return
	# The machine may be gone tomorrow: the input must be in what was printed.
	input=$(sed -n 's/.*Failing input written to //p' "$tmp/fuzz.log")
	if [[ -n $input ]]; then
		echo "$dir/$input:" && cat "$dir/$input"
	fi
	fail "$name in $dir found a failure"
}

# ---- Choosing, timing and adding up.

budget_of() {
	local p
	for p in "${parts[@]}"; do
		if [[ ${p%:*} = "$1" ]]; then
			echo "${p#*:}"
			return
		fi
	done
	fail "no part $1: there are ${parts[*]%:*}"
}

summary=
saved=0 # seconds, by the parts before
table() {
	printf '\n%-12s %8s %8s\n%s%-12s %8d %8d\n' part seconds budget "$summary" all "$SECONDS" "$most"
}

# run_part runs a part in the background, because only a shell that waits
# can be interrupted, and as a job (set -m), because a plain background
# command, and so every test below it, would ignore interrupts.
run_part() {
	local part=$1 own budget start=$SECONDS status=0 took
	own=$(budget_of "$part")
	budget=$((own + saved))
	printf '\n=== %s (at most %d s)\n' "$part" "$budget"
	set -m
	tmp=$tmp budget=$budget timeout --kill-after=5 "$budget" "$script" --part "$part" </dev/null &
	set +m
	running=$!
	wait "$running" || status=$?
	running=
	took=$((SECONDS - start)) saved=$((budget - took))
	printf -- '--- %s: %d s\n' "$part" "$took"
	summary+=$(printf '%-12s %8d %8d' "$part" "$took" "$own")$'\n'
	case $status in
	0) return ;;
	124 | 137) table && fail "FAILED: $part took more than its $budget s" ;;
	*) table && fail "FAILED: $part" ;;
	esac
}

running=
stop() {
	if [[ -n $running ]]; then
		kill -TERM "$running" && wait "$running" || true
	fi
	exit 130
}

# ci_main runs the parts that are named, or all of them; or one, in the shell that
# run_part starts for it.
ci_main() {
	if [[ ${1-} = --part ]]; then
		modules=$(find_modules | sed "\|^$zoo\$|d; \|^$platforms\$|d")
		members=$(echo "$modules" | sed "/^$tools\$/d")
		[[ -n $members ]] || fail "no modules"
		"part_$2"
		return
	fi
	local command part sum=0 chosen=("$@")
	for command in go git timeout; do
		command -v "$command" >/dev/null || fail "needs $command"
	done
	for part in "${parts[@]}"; do
		sum=$((sum + ${part#*:}))
		(($# > 0)) || chosen+=("${part%:*}")
	done
	((sum < most)) || fail "the budgets add up to $sum s, and must stay below $most"
	for part in "${chosen[@]}"; do
		budget_of "$part" >/dev/null
	done

	exec 2>&1 # so that a command and what it prints stay together
	tmp=$(mktemp -d)
	trap 'rm -rf "$tmp"' EXIT
	trap stop INT TERM
	git status --porcelain >"$tmp/changes"
	for part in "${chosen[@]}"; do
		run_part "$part"
	done
	table
	echo "passed"
}
