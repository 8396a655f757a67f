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
