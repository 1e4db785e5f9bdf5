"""What is lost, component by component: each module looks at one group of components of a resumed run."""
