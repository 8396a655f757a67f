package store

// LimitTexts writes the limits of a run as a Record has them; none are nil.
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

// LimitFaultKind is a word for what is not as it has to be.
type LimitFaultKind string

// The faults that CheckLimits finds.
const (
	LimitExceeded  LimitFaultKind = "exceeded"  // more is held of a key than there is, by permits younger than the last change
	PermitOrphaned LimitFaultKind = "orphaned"  // a permit without its claim, or whose run has ended
	RunMisplaced   LimitFaultKind = "misplaced" // a run is in a line that is not its own
	KeyStuck       LimitFaultKind = "stuck"     // there is room, a run is due, and nothing says so to the workers
)

// LimitFault is one thing that is not as it has to be.
type LimitFault struct {
	Fault LimitFaultKind
	Limit string // empty: the line of runs that have all their permits
	Key   string // as a run spells it; empty: not known, or none
	Run   RunID  // one that it concerns; zero: none
	Text  string // for people
}
