package durabletest
import "testing"
func enqueueTests() map[string]func(*testing.T, *fixture) { return nil }
func boundTests() map[string]func(*testing.T, *fixture) { return nil }
func claimTests() map[string]func(*testing.T, *fixture) { return nil }
func settleTests() map[string]func(*testing.T, *fixture) { return nil }
func raceTests() map[string]func(*testing.T, *fixture) { return nil }
func inspectTests() map[string]func(*testing.T, *fixture) { return nil }
func scheduleTests() map[string]func(*testing.T, *fixture) { return nil }
func listenTests() map[string]func(*testing.T, *fixture) { return nil }
