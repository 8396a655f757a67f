// Package storable says which texts every engine can store and give back as they
// were, and makes other texts fit.
package storable
