package cli

// The exit statuses of all commands.
const (
	ExitOK          = 0
	ExitFailed      = 1   // something failed
	ExitUsage       = 2   // it could not begin
	ExitStopped     = 3   // it stopped before the end, and can be resumed
	ExitLimit       = 4   // a limit of the command line ended it
	ExitInterrupted = 130 // 128 + SIGINT, as shells have it
	ExitPipe        = 141 // 128 + SIGPIPE
)

// An Exit is a status that a command ends with, and what it means there.
type Exit struct {
	Status int
	Text   string
}

// Exits is what each status means, whatever the command is.
var Exits = []Exit{
	{ExitOK, "all is done"},
	{ExitFailed, "it ended, and something failed"},
	{ExitUsage, "it could not begin: its flags, its input, or a file or folder; nothing was done"},
	{ExitStopped, "it stopped before the end, and can be resumed"},
	{ExitLimit, "a limit that was set ended it; with a higher one it can be resumed"},
	{ExitInterrupted, "it was interrupted, as by Ctrl-C"},
	{ExitPipe, "its output is no longer read, as by head"},
}
