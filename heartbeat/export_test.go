package heartbeat

// Held returns the number of leases in care.
func (k *Keeper) Held() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.holds)
}
