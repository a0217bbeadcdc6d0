"""What the paper prints and proves, what holds instead, and its tables made again.

Outside the package: nothing that makes a release may import any of it. ``python -m reproduction``
makes the tables as printed, as derived, and as an early-stopped fit gives them.

=============  ==================================================================================
bounds         the paper's statements in a form that holds
selection      what happens to bags that know the labels
gradients      its bounds for generalised linear models, in a form that holds
printed        its bounds as they are printed
printed_noise  its privacy noise as it is printed
cells          the cells of the tables, what is printed in them, and what one needs to name one
squared_errors  by how much errors vary around what theory expects
draws          features as it draws them, bags, and random streams that are the same for every cell
protocol       the training that explains the printed values: Adam, stopped early
open_cells     one run of a cell without privacy
private_cells  one run of a cell with privacy
reproduce      all of it, over processes
compare        strategies and losses on a table of one's own
measured       jobs, and results by cell
agreement      how near theory comes to the minimisers, and the protocol to what is printed
claims         what the paper says about its tables, judged
tables         results as tables
report         all of it together, as Markdown
=============  ==================================================================================
"""
