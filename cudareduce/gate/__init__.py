"""The regression gate: comparing runs, trees and baselines, and telling people and CI."""
