package builtin

import "net/url"

// What the tests look at from outside.
var (
	Dial         = dial
	CheckAddress = checkAddress
)

// Find returns the URL that is posted to.
func (o Origins) Find(text string) (*url.URL, error) { return o.find(text) }
