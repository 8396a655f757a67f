package store

// LimitTexts writes the limits of a run as a Record has them. Without limits it returns nil.
func LimitTexts(uses []LimitUse) (texts []string) {
	for i := range uses {
		texts = append(texts, uses[i].String())
	}
	return texts
}

// ParseLimitTexts reads what LimitTexts has written.
func ParseLimitTexts(texts []string) (uses []LimitUse, err error) {
	for _, text := range texts {
		use, err := ParseLimitUse(text)
		if err != nil {
			return nil, err
		}
		uses = append(uses, use)
	}
	return uses, nil
}

// LimitFaultKind is a kind of violation that CheckLimits finds.
type LimitFaultKind string

// The kinds of violation.
const (
	LimitExceeded  LimitFaultKind = "exceeded"  // the permits of a key hold more than there is, although they are younger than the last change
	PermitOrphaned LimitFaultKind = "orphaned"  // the claim of a permit is gone, or its run has ended
	RunMisplaced   LimitFaultKind = "misplaced" // a run is in a line that it does not belong in
	LineUnread     LimitFaultKind = "unread"    // a run is in a line that no worker reads
	KeyStuck       LimitFaultKind = "stuck"     // a run is due and there is room for it, but nothing notifies the workers
)

// LimitFault is one violation that CheckLimits has found.
type LimitFault struct {
	Fault LimitFaultKind
	Limit string // empty: the line of runs that have all their permits
	Key   string // as a run spells it; empty: not known, or none
	Run   RunID  // a run that it concerns; zero: none
	Text  string // for people
}
