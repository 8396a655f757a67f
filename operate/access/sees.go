package access

// Sees says who sees what applications have stored. The API and the pages ask here, and
// nowhere else.
type Sees struct {
	Args  Role // the least role that sees args, results and checkpoints. Zero: Operator
	Texts Role // the least role that sees errors, stacks, log lines and notes. Zero: Viewer
}

// SeesArgs reports whether a role sees args, results and checkpoints.
func (s Sees) SeesArgs(role Role) bool { return role >= s.args() }

// SeesTexts reports whether a role sees errors, stacks, log lines and notes.
func (s Sees) SeesTexts(role Role) bool { return role >= max(s.Texts, Viewer) }

// All is the least role that sees everything.
func (s Sees) All() Role { return max(s.args(), s.Texts) }

func (s Sees) args() Role {
	if s.Args == 0 {
		return Operator
	}
	return s.Args
}
