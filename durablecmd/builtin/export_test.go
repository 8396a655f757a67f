package builtin

import "net/url"

// What the tests look at from outside.
var (
	Dial         = gate{}.dial
	CheckAddress = gate{}.check
	CheckPublic  = gate{refusePrivate: true}.check
)

// Find returns the URL that is posted to.
func (o Origins) Find(text string) (*url.URL, error) { return o.find(text) }
