package dashboard

import "net/http"

// who is the person that asks.
type who struct {
	Name     string
	Operator bool // may change things
}

// Actor names the person in the audit.
func (w who) Actor() string { return w.Name }

func (d *dashboard) who(*http.Request) who { return who{Name: "dashboard", Operator: true} }
