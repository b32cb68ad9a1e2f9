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

// An Exit is a status that a command ends with, and its meaning there.
type Exit struct {
	Status int
	Text   string
}

// Exits are the meanings that hold for all commands.
var Exits = []Exit{
	{ExitOK, "all is done"},
	{ExitFailed, "it ended, and something failed"},
	{ExitUsage, "it could not begin, for its flags, its input or a file; nothing was done"},
	{ExitStopped, "it stopped before the end, and can be resumed"},
	{ExitLimit, "a limit that was set ended it; with a higher one it can be resumed"},
	{ExitInterrupted, "it was interrupted by Ctrl-C or a signal"},
	{ExitPipe, "its output is no longer read, such as behind head"},
}
