package proxy

import "github.com/sluice-go/sluice/cmd/internal/cli"

// name begins each line for people.
const name = cli.Program + " proxy"

// Command is sluice proxy.
var Command = &cli.Command{
	Name:  "proxy",
	Short: "lets calls to rate-limited APIs wait, instead of refusing them, for programs in every language",
	Usage: []string{"[flags]"},
	Examples: []cli.Example{
		{What: "the hosts that are known", Line: "sluice proxy"},
		{What: "a call", Line: "curl http://localhost:7777/api.github.com/zen"},
		{What: "a script in Python", Line: "OPENAI_BASE_URL=http://localhost:7777/api.openai.com/v1 python script.py"},
		{What: "another API", Line: "sluice proxy -route '/jira=https://example.atlassian.net preset=atlassian'"},
	},
	Flags: func() *cli.Flags { return newFlags(new(options)) },
	Run:   start,
	Sections: []cli.Section{
		{
			Title: "Calls",
			Text: `
It is a reverse proxy: the first part of the path is the host, or the name of a route. Callers send
their own credentials.

What a server allows is read from its responses, or found out from its refusals. A call that it
refuses is sent again, if that is safe. A call that would have to wait for longer than -patience is
answered with 429 and a Retry-After, immediately. Callers with different credentials take turns, or share by -class and -tenant.
`,
		},
		{
			Title: "Signals and the end",
			Text: `
After SIGTERM or Ctrl-C no connection is accepted, and calls have the time of -drain to end; a second
signal cuts them. SIGHUP reads the file of -config again.
`,
		},
	},
	Exits: []cli.Exit{
		{Status: cli.ExitOK, Text: "it ended after a signal, and all calls were answered"},
		{Status: cli.ExitFailed, Text: "calls were cut at the end, or the state could not be written"},
		{Status: cli.ExitUsage, Text: "it could not begin"},
	},
}
