package cli

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
)

// URL reads the value of a flag that is a URL, or with @file the name of a file with one. Its user and
// password are in that file, or in the environment variable auth, as user:password or as a token. They
// must not be on the command line, which others see and logs keep. No error shows them.
func URL(text, auth string) (*url.URL, error) {
	file, inFile := strings.CutPrefix(text, "@")
	if inFile {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		text = strings.TrimSpace(string(b))
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("it is not a URL") // err would show the password
	}
	if u.User != nil && !inFile {
		return nil, fmt.Errorf("a password on the command line is seen by others: put the URL into a file and give @file, or the credentials into the environment variable %s", auth)
	}
	if value := os.Getenv(auth); value != "" && u.User == nil {
		u.User = url.User(value)
		if user, password, both := strings.Cut(value, ":"); both {
			u.User = url.UserPassword(user, password)
		}
	}
	return u, nil
}
