package batch

import "github.com/sluice-go/sluice/cmd/internal/cli"

// name begins each line for people.
const name = cli.Program + " batch"

// Command is sluice batch.
var Command = &cli.Command{
	Name:  "batch",
	Short: "runs a command, or makes an HTTP call, for each line of a file, at a steady rate",
	Usage: []string{"[flags] -- command {} ...", "[flags] command {} ... ::: item ...", "[flags] -url https://host/{} [::: item ...]", "-queue nats://host/name [-fill file] [flags] [command {} ...]"},
	Examples: []cli.Example{
		{What: "three commands, two per second", Line: `printf '%s\n' a b c | sluice batch -rate 2/s -- echo {}`},
		{What: "as often as the server allows; killed at any time, it goes on where it was", Line: `sluice batch -in ids.txt -log run.jsonl -resume -url 'https://api.example.com/{}'`},
		{What: "put items into a queue, to work on them on several machines, under one limit", Line: `sluice batch -queue nats://host/orders -fill ids.txt`},
		{What: "work on them; the same on each machine", Line: `sluice batch -queue nats://host/orders -redis redis://host -rate 50/s -jsonl lines -url 'https://api.example.com/{}'`},
	},
	Flags:    func() *cli.Flags { return newFlags().set },
	Operands: cli.Operands{Program: true},
	Run:      run,
	Sections: []cli.Section{
		{
			Title: "Items",
			Text:  "These placeholders stand for the item in the command, address, body and header, as in GNU parallel:",
			Terms: []cli.Term{
				{Name: "{}", Text: "the item"},
				{Name: "{.}", Text: "without its extension"},
				{Name: "{/}", Text: "its base name"},
				{Name: "{//}", Text: "its folder"},
				{Name: "{/.}", Text: "its base name without the extension"},
				{Name: "{#}", Text: "its number, from 1"},
				{Name: "{%}", Text: "the number of the job, from 1 to -jobs; with -url it can be larger"},
				{Name: "{1}", Text: "with -colsep the first column of the item, {2} the second, and so on; with -n its first line, {2} the second, and so on; {1.} {1/} {1//} {1/.} are parts of it, as above"},
				{Name: "{.name}", Text: "with -json the field name of the item, {.user.name} one of an object in it: a string without its quotes, anything else as JSON; empty if it is missing"},
			},
		},
		{
			Title: "Commands",
			Text: `
The arguments behind ::: are the items, as in GNU parallel, and neither -in nor stdin is read. Behind
-- it has no meaning: there it is an argument of the command.

A command without placeholders gets the item as its last argument. Commands run without a shell,
so an item is always one argument. -shell sh runs the words of the command, with spaces between
them, as a line of that shell; items are quoted for it:

	sluice batch -shell sh 'wc -l <{} >{.}.count' ::: *.txt

A command fails if its exit status is not 0. The output of an item is printed in one piece when the
item is done, or with -line-buffer while the command runs. Without that, the output of attempts that
are retried is dropped.

Commands get no input: stdin is empty, and one that asks on the terminal, such as for a password,
is ended (on Linux; elsewhere it waits until -timeout). If the system has too few file handles or
processes for -jobs, fewer run at once. If sluice itself is killed by SIGKILL, its commands get a
SIGTERM, but not their children (on Linux; elsewhere they run on): let them end before you resume.
`,
		},
		{
			Title: "HTTP calls",
			Text: `
In an address the item is escaped, unless the address, or its host, begins with it. A call fails if
its status is 400 or more. Calls obey Retry-After and rate limits. While most calls to a host fail,
there are fewer retries than -retries allows. A redirect that is followed is no retry; it takes a
turn of -rate, because the server counts it. A body that stalls or is cut is asked for again, unless
the method is POST or PATCH.

No host holds up the others: at most half of the -jobs are calls to one host, as long as others have
items, and a host that fails -aside times in a row is set aside. It is tried again after 2s, 4s and
so on. When that fails, three times if the host worked before, its items fail at once; but if no
other host works, the job stops.
`,
		},
		{
			Title: "Many machines",
			Text: `
With -queue the items are in a work queue of a NATS server with JetStream, and any number of jobs take
them from it. A job has at most -jobs items, for as long as it lives: while they wait for the limit, are
tried again or run. If it is killed, they go to other jobs after -lease. An item leaves the queue when
its line of -jsonl is written. A job ends when all items are done, whichever job did them; it also
ends if there are none. Ctrl-C gives back what was not begun.

An item that fails after all -retries becomes a dead letter, with its error. So does one that was
delivered 20 times to jobs that did not live to say what came of it. -dead list prints them, -dead retry
puts them back.

No item is lost, but one can be run twice: if a job is killed while it runs it, or stopped for longer
than -lease. Then it may also have two lines, one of each job; a job that begins again with the same -jsonl
writes no second line of an item in it. Each job needs a -jsonl of its own. Send the item, or {.id}, as
an idempotency key if the server knows such keys.

Without -redis, -rate is that of each job. With it, the rate is that of all jobs of the queue, which
should have the same -rate. While the Redis is away, calls wait. While the queue is away, a job finishes
what it has.
`,
		},
		{
			Title: "Signals and the end",
			Text: `
The first Ctrl-C lets running items finish, the second cancels them, the third ends the program.
SIGTERM, SIGHUP and SIGQUIT do as Ctrl-C does. Ctrl-Z stops running commands, too; limits of time do
not include the stop.

At the end, p95 says how late 95 of 100 items left, compared with the rate and -jobs, and how long an
attempt took.
`,
		},
	},
	Exits: []cli.Exit{
		{Status: cli.ExitOK, Text: "all items are ok, or as many as -halt success requires"},
		{Status: cli.ExitFailed, Text: "some items failed"},
		{Status: cli.ExitUsage, Text: "the job could not begin"},
		{Status: cli.ExitStopped, Text: "it stopped before the end; -resume, or the same command with -queue, goes on"},
		{Status: cli.ExitInterrupted, Text: "it was interrupted; -resume, or the same command with -queue, goes on"},
		{Status: cli.ExitPipe, Text: "its output is no longer read, such as behind head"},
	},
}
