CREATE TABLE orders (id INTEGER PRIMARY KEY AUTOINCREMENT, customer TEXT, cents INTEGER);
CREATE TABLE totals (id INTEGER PRIMARY KEY AUTOINCREMENT, customer TEXT, cents INTEGER);
INSERT INTO orders (customer, cents) VALUES ('ada', 250), ('bob', 100), ('ada', 150);
